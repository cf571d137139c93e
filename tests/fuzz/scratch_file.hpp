// ScratchFile: a file in memory, for readers that take a path. ScratchFolder: a folder of such
// files. Parts of an input.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "messages/check.hpp"

namespace grapevine::fuzzing {

class ScratchFile {
 public:
  ScratchFile() : file_(::memfd_create("grapevine-fuzz", MFD_CLOEXEC)) {
    GRAPEVINE_CHECK(file_ >= 0, "no file in memory");
  }
  ~ScratchFile() { ::close(file_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  // Replaces the content. The file keeps its memory, which is cheaper than to get it anew.
  void fill(std::string_view bytes) {
    const bool filled = ::pwrite(file_, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()) &&
                        (bytes.size() >= size_ || ::ftruncate(file_, off_t(bytes.size())) == 0);
    GRAPEVINE_CHECK(filled, "the file in memory cannot be written");
    size_ = bytes.size();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  const int file_;
  std::size_t size_ = 0;
};

// Made once for a process: its files get new content for each input.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("grapevine-fuzz-" + name + "-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // The folder has the file under that name, too.
  void add(const std::string& name, const ScratchFile& file) const {
    std::filesystem::create_symlink(file.path(), path_ / name);
  }
  std::string path() const { return path_.string(); }

 private:
  const std::filesystem::path path_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The text up to `end`, which is taken off `rest` with it.
inline std::string_view take_until(std::string_view end, std::string_view& rest) {
  const std::size_t at = rest.find(end);
  const std::string_view part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view() : rest.substr(at + end.size());
  return part;
}

}  // namespace grapevine::fuzzing
