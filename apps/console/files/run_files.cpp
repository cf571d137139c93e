#include "apps/console/files/run_files.hpp"

#include <cstddef>
#include <fstream>
#include <system_error>

#include "apps/console/read_up_to.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 24;  // bytes

}  // namespace

bool is_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const char* name : {"job.toml", "metrics.csv", "summary.json", "checkpoint"})
    if (std::filesystem::exists(folder / name, ignored)) return true;
  return false;
}

Error no_run_there(const std::filesystem::path& folder) {
  return bad_input("'" + folder.string() +
                   "' is not the folder of a run: it has no job.toml; give the one of train --out");
}

std::string run_file_text(const std::filesystem::path& file) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) return "";
  std::ifstream in(file, std::ios::binary);
  std::string text = read_up_to(in, kLargestFile);
  return text.size() > kLargestFile ? "" : text;
}

std::optional<nlohmann::ordered_json> run_summary(const std::filesystem::path& folder) {
  auto summary = nlohmann::ordered_json::parse(run_file_text(folder / "summary.json"), nullptr,
                                               /*allow_exceptions=*/false);
  if (!summary.is_object()) return std::nullopt;
  return summary;
}

}  // namespace grapevine
