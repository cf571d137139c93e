#include "net/shm/shm_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace grapevine::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error no_memory(std::uint64_t bytes, int error) {
  return {Errc::io, fmt::format("no shared memory of {} bytes: {}", bytes,
                                std::generic_category().message(error))};
}

}  // namespace

Expected<std::shared_ptr<SharedMemory>> SharedMemory::make(std::uint64_t bytes) {
  bytes = whole_pages(bytes);
  FileDescriptor file(::memfd_create("grapevine", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return no_memory(bytes, errno);
  const auto size = static_cast<off_t>(bytes);
  int refused = ::ftruncate(file.get(), size) != 0 ? errno : 0;
  // posix_fallocate() would write page by page where the kernel refuses.
  while (refused == 0 && ::fallocate(file.get(), 0, 0, size) != 0)
    if (errno != EINTR) refused = errno;
  if (refused == 0 && ::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) refused = errno;
  if (refused != 0) return no_memory(bytes, refused);
  return map(std::move(file), bytes);
}

Expected<std::shared_ptr<SharedMemory>> SharedMemory::open(FileDescriptor file,
                                                           std::uint64_t bytes) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  struct stat status {};
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || ::fstat(file.get(), &status) != 0)
    return Error{Errc::protocol, "shared memory that could shrink"};
  constexpr std::uint64_t kBlock = 512;  // of st_blocks, by its definition
  if (bytes == 0 || bytes != whole_pages(bytes) ||
      static_cast<std::uint64_t>(status.st_size) != bytes ||
      static_cast<std::uint64_t>(status.st_blocks) < bytes / kBlock)
    return Error{Errc::protocol, fmt::format("shared memory of {} bytes, {} of them with memory, "
                                             "where {} were announced",
                                             status.st_size, status.st_blocks * 512, bytes)};
  auto memory = map(std::move(file), bytes);
  if (memory) (*memory)->file_.reset();
  return memory;
}

Expected<std::shared_ptr<SharedMemory>> SharedMemory::map(FileDescriptor file,
                                                          std::uint64_t bytes) {
  // MAP_POPULATE: a fault for each page, later, costs as much as moving its bytes.
  void* const data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return no_memory(bytes, errno);
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(file), static_cast<std::byte*>(data), bytes));
}

SharedMemory::~SharedMemory() { ::munmap(data_, bytes_); }

}  // namespace grapevine::shm
