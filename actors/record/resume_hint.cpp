#include "actors/record/resume_hint.hpp"

#include <filesystem>

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr char kResume[] = "; resume with --resume ";
constexpr char kNothing[] = "; no checkpoint was written";
constexpr char kWriting[] = "; a checkpoint was being written: look in ";
constexpr char kSearch[] = "; look for a checkpoint in ";

}  // namespace

std::string resume_hint(const std::string& path) {
  return path.empty() ? kNothing : kResume + path;
}

std::string writing_hint(const std::string& out) { return kWriting + out; }

std::string search_hint(const std::string& out, const std::string& host) {
  return kSearch + out + " on " + host;
}

std::string resume_hint_in(const std::string& line) {
  for (const std::string hint : {kResume, kNothing, kWriting, kSearch})
    if (const auto at = line.rfind(hint); at != std::string::npos) return line.substr(at);
  return "";
}

std::string run_folder_of(const std::string& checkpoint) {
  const fs::path folder = fs::path(checkpoint).parent_path();
  if (folder.filename() != "checkpoint") return checkpoint;
  return folder.has_parent_path() ? folder.parent_path().string() : ".";
}

}  // namespace grapevine
