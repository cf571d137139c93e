#include "apps/zoo/data/own/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace grapevine {

Expected<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto failed = [&path](const std::string& why) {
    return bad_input(path + ": cannot be read: " + why + ": check the path and its rights");
  };
  if (file < 0) return failed(std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(file, &status) == 0;
  const bool regular = known && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(known ? status.st_size : 0);
  void* data = MAP_FAILED;
  if (regular && size > 0) data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
  const int number = errno;
  ::close(file);
  if (!regular) return failed("it is no regular file");
  if (size == 0) return failed("it is empty");
  if (data == MAP_FAILED) return failed(std::strerror(number));
  return std::shared_ptr<const MappedFile>(
      new MappedFile(static_cast<const std::uint8_t*>(data), size));
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::uint8_t*>(data_), size_); }

}  // namespace grapevine
