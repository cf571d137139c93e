// A file in memory without a copy: the system reads its pages when they are used.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "messages/expected.hpp"

namespace grapevine {

// Immutable: thread-safe. A file that another program makes shorter meanwhile ends the process when
// its lost pages are read (SIGBUS).
class MappedFile {
 public:
  // Errors (bad_input): absent, a folder, empty, unreadable.
  static Expected<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::uint8_t* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  MappedFile(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  const std::uint8_t* const data_;
  const std::size_t size_;
};

}  // namespace grapevine
