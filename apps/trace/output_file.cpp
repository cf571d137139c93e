#include "apps/trace/output_file.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "actors/record/files.hpp"
#include "apps/train/train_folder.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

// `run` may be the folder of the trace inside the run's.
bool is_of_run(const fs::path& path, const fs::path& run) {
  std::error_code ignored;
  for (const fs::path& folder : {run, run / ".."})
    for (const EarlierOutput& own : earlier_outputs(folder.string()))
      if (fs::equivalent(path, own.path, ignored)) return true;
  return false;
}

}  // namespace

Expected<void> prepare_output_file(const std::string& option, const std::string& path,
                                   const std::string& run) {
  const auto refuse = [&](const std::string& why) {
    return bad_input(fmt::format("{} {}: {}", option, path, why));
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return refuse("is a folder: give the name of a file");
  if (is_of_run(path, run)) return refuse("is a file of the run: choose another name");
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty())
    if (auto made = ensure_writable_directory(folder); !made) return refuse(made.error().message);
  if (const auto probe = AtomicFile::create(path); !probe) return refuse(probe.error().message);
  return {};
}

Expected<void> check_page_path(const std::string& path) {
  const std::string ending = fs::path(path).extension().string();
  if (ending == ".html" || ending == ".htm") return {};
  return bad_input(fmt::format("--html {}: the name must end in .html", path));
}

}  // namespace grapevine
