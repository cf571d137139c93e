#include <string>
#include <string_view>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/run/state_bytes.hpp"
#include "tests/fuzz/fuzz_targets.hpp"
#include "tests/fuzz/scratch_file.hpp"

namespace grapevine {
namespace {

// A checkpoint of two ranks.
class CheckpointFolder {
 public:
  CheckpointFolder() {
    StateDict state;
    state.put("reported", std::int64_t{7});
    const std::vector<char> bytes = to_bytes(state);
    rank_.fill({bytes.data(), bytes.size()});
    folder_.add("job.json", job_);
    for (const char* name : {"rank-0000.pt", "rank-0001.pt"}) folder_.add(name, rank_);
  }

  std::string fill(std::string_view job) {
    job_.fill(job);
    return folder_.path();
  }

 private:
  fuzzing::ScratchFile job_, rank_;
  const fuzzing::ScratchFolder folder_{"checkpoint"};
};

}  // namespace

void fuzz_one_checkpoint(const std::uint8_t* data, std::size_t size) {
  static CheckpointFolder folder;
  const auto checkpoint = read_checkpoint(folder.fill(fuzzing::text_of(data, size)));
  if (!checkpoint) return check_one_line(checkpoint.error());
  GRAPEVINE_CHECK(checkpoint->reported().size() == checkpoint->ranks.size(), "ranks are missing");
  const JobIdentity present = {{"algorithm", "sgp"}, {"steps", "10"}, {"world size", "2"}};
  if (const auto same = check_same_job(checkpoint->identity, present, "folder"); !same)
    check_one_line(same.error());
}

}  // namespace grapevine
