#include "actors/record/checkpoints/find_checkpoint.hpp"

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace grapevine {
namespace {

namespace fs = std::filesystem;

bool has_job_json(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "job.json", ignored);
}

struct FoundCheckpoint {
  fs::path path;
  bool complete = true;    // with all files that its job.json names, each of its length
  std::int64_t step = -1;  // checkpoints of earlier versions do not say it
  fs::file_time_type written;
};

// Nothing where the folder is no checkpoint.
std::optional<FoundCheckpoint> checkpoint_in(const fs::path& folder) {
  const fs::path job = folder / "job.json";
  std::error_code error;
  if (!fs::is_regular_file(job, error)) return std::nullopt;
  try {
    const auto document = nlohmann::json::parse(std::ifstream(job));
    if (document.count("version") == 0 || document.count("ranks") == 0) return std::nullopt;
    FoundCheckpoint found;
    found.path = folder;
    found.step = document.value("step", std::int64_t{-1});
    found.written = fs::last_write_time(job, error);
    const auto files = document.value("files", nlohmann::json::object());
    for (const auto& [name, mark] : files.items())
      if (fs::file_size(folder / name, error) != mark.at("bytes").get<std::uintmax_t>())
        found.complete = false;
    return found;
  } catch (const std::exception&) {  // no JSON, or another one
    return std::nullopt;
  }
}

// The times of a copy may be those of copying.
bool comes_first(const FoundCheckpoint& one, const FoundCheckpoint& other, bool copied) {
  if (one.complete != other.complete) return one.complete;
  const bool by_step = copied && one.step >= 0 && other.step >= 0 && one.step != other.step;
  return by_step ? one.step > other.step : one.written > other.written;
}

std::optional<fs::path> newest_in(const fs::path& folder) {
  std::error_code ignored;
  const bool copied = !fs::is_symlink(folder / "latest", ignored);
  std::optional<FoundCheckpoint> newest;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const bool unfinished = entry.path().filename().string().rfind(kUnfinishedPrefix, 0) == 0;
    if (unfinished || entry.is_symlink(ignored)) continue;
    auto found = checkpoint_in(entry.path());
    if (found && (!newest || comes_first(*found, *newest, copied))) newest = std::move(found);
  }
  return newest ? std::optional(newest->path) : std::nullopt;
}

}  // namespace

std::string checkpoint_at(const std::string& path) {
  const fs::path run(path);
  for (const fs::path& candidate : {run, run / "latest", run / "checkpoint" / "latest"})
    if (has_job_json(candidate)) return candidate.string();
  for (const fs::path& folder : {run / "checkpoint", run})
    if (const auto found = newest_in(folder)) return found->string();
  return "";
}

NamedCheckpoint named_checkpoint_at(const std::string& path) {
  fs::path folder = checkpoint_at(path);
  if (!folder.has_filename()) folder = folder.parent_path();  // of a name that ends in a slash
  std::error_code no_link;
  const fs::path target = fs::read_symlink(folder, no_link);
  if (!no_link) folder = folder.parent_path() / target;
  struct stat job {};
  const bool is_there = ::stat((folder / "job.json").c_str(), &job) == 0;
  return {folder.string(), is_there ? job.st_ino : 0};
}

}  // namespace grapevine
