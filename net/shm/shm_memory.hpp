// Shared memory without a name: a memory file whose size can never change.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine::shm {

// Mapped for as long as the object lives, in the processes that have it. The system frees the pages
// with the last mapping and descriptor, however the processes end. All pages exist from the start
// and the file is sealed against another size: no access can fail (SIGBUS), whatever other
// processes do to the file's size.
class SharedMemory {
 public:
  // Zeroed; `bytes` are rounded up to whole pages. Errors (io): no memory, with the system's text.
  static Expected<std::shared_ptr<SharedMemory>> make(std::uint64_t bytes);
  // Memory of another process, which claims that it has `bytes`. Errors (protocol): it has another
  // size, pages without memory, or could shrink; io: it cannot be mapped.
  static Expected<std::shared_ptr<SharedMemory>> open(FileDescriptor file, std::uint64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::byte* data() const { return data_; }
  std::uint64_t bytes() const { return bytes_; }
  // To be passed to other processes. REQUIRES: made here. The mapping is all that is kept of
  // others': a process may have thousands.
  int descriptor() const { return file_.get(); }

 private:
  SharedMemory(FileDescriptor file, std::byte* data, std::uint64_t bytes)
      : file_(std::move(file)), data_(data), bytes_(bytes) {}
  static Expected<std::shared_ptr<SharedMemory>> map(FileDescriptor file, std::uint64_t bytes);

  FileDescriptor file_;  // none in memory of another process
  std::byte* const data_;
  const std::uint64_t bytes_;
};

inline constexpr std::uint64_t kPage = 4096;
inline std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace grapevine::shm
