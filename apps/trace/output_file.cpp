#include "apps/trace/output_file.hpp"

#include <filesystem>
#include <fstream>
#include <string_view>

#include <fmt/format.h>

#include "actors/record/files.hpp"
#include "apps/console/read_up_to.hpp"
#include "apps/trace/trace_csv.hpp"
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

constexpr std::size_t kOwnSignWithin = 1024;  // bytes from the beginning
constexpr std::string_view kPageSign = "<title>Grapevine run</title>";
constexpr std::string_view kChromeStart = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
// Of Perfetto's first packet, behind its length: sequence 1, names are void, a track.
constexpr std::string_view kPacketStart = "\x50\x01\x68\x01\xe2\x03";
constexpr std::size_t kLongestLength = 3;  // of that packet, in bytes

bool has_start(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool is_timeline(std::string_view start) {
  if (has_start(start, kChromeStart)) return true;
  const std::size_t packet =
      start.substr(0, 2 + kLongestLength + kPacketStart.size()).find(kPacketStart);
  return has_start(start, "\x0a") && packet != std::string_view::npos && packet > 1;
}

// An empty file is nobody's.
bool is_of_this_verb(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string start = read_up_to(file, kOwnSignWithin);
  return start.empty() || start.find(kPageSign) != std::string::npos || is_timeline(start) ||
         has_start(start, kAppliedColumns) || has_start(start, kWaitColumns) ||
         has_start(start, kEdgeColumns);
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
  if (fs::is_regular_file(path, ignored) && !is_of_this_verb(path))
    return refuse("is there, and not from grapevine trace: choose another name, or remove it");
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
