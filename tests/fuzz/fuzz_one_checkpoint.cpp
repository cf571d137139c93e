#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/run/state_bytes.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/scratch_file.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

// A checkpoint of two ranks, whose job.json is in memory.
class CheckpointFolder {
 public:
  CheckpointFolder()
      : path_(fs::temp_directory_path() /
              ("grapevine-fuzz-checkpoint-" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    fs::create_symlink(job.path(), path_ / "job.json");
    StateDict state;
    state.put("reported", std::int64_t{7});
    const std::vector<char> bytes = to_bytes(state);
    for (const char* name : {"rank-0000.pt", "rank-0001.pt"})
      std::ofstream(path_ / name, std::ios::binary)
          .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  ~CheckpointFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  std::string path() const { return path_.string(); }

  fuzzing::ScratchFile job;

 private:
  const fs::path path_;
};

}  // namespace

void fuzz_one_checkpoint(const std::uint8_t* data, std::size_t size) {
  static const CheckpointFolder folder;
  folder.job.fill(fuzzing::text_of(data, size));
  const auto checkpoint = read_checkpoint(folder.path());
  if (!checkpoint) return check_one_line(checkpoint.error());
  GRAPEVINE_CHECK(checkpoint->reported().size() == checkpoint->ranks.size(), "ranks are missing");
  const JobIdentity present = {{"algorithm", "sgp"}, {"steps", "10"}, {"world size", "2"}};
  if (const auto same = check_same_job(checkpoint->identity, present, "folder"); !same)
    check_one_line(same.error());
}

}  // namespace grapevine
