// ScratchFile: a file in memory, for readers that take a path.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
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

  // Replaces the content.
  void fill(std::string_view bytes) const {
    const bool filled = ::ftruncate(file_, 0) == 0 &&
                        ::pwrite(file_, bytes.data(), bytes.size(), 0) == ssize_t(bytes.size());
    GRAPEVINE_CHECK(filled, "the file in memory cannot be written");
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  const int file_;
};

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace grapevine::fuzzing
