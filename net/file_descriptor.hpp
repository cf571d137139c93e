// FileDescriptor: owns a file, socket or pipe end of the system.
#pragma once
#include <unistd.h>

#include <array>
#include <utility>

namespace grapevine {

// Closes its descriptor at its end; negative: it owns none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~FileDescriptor() { reset(); }

  int get() const { return descriptor_; }
  // The caller closes it.
  int release() { return std::exchange(descriptor_, -1); }
  // REQUIRES: another descriptor than the present one.
  void reset(int descriptor = -1) {
    const int old = std::exchange(descriptor_, descriptor);
    if (old >= 0) ::close(old);
  }

 private:
  int descriptor_ = -1;
};

// Of a pipe: reads, writes. Of a pair of sockets: both do both.
using DescriptorPair = std::array<FileDescriptor, 2>;

// The pair whose descriptors make(int[2]) writes, a system call. Where it fails, none, and errno
// is set.
template <class Make>
DescriptorPair descriptor_pair(const Make& make) {
  std::array<int, 2> ends = {-1, -1};
  if (make(ends.data()) != 0) return {};
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

}  // namespace grapevine
