// RowFile: a text file that grows by whole rows while a run writes it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "messages/expected.hpp"

namespace grapevine {

// A killed process leaves the written rows, of which at most the last one is cut off. Not
// thread-safe.
class RowFile {
 public:
  // Bytes of rows that could not be written yet: further rows are left out, and counted.
  static constexpr std::size_t kLongestBacklog = std::size_t{1} << 20;

  // Appends to an existing file. Errors (io): it cannot be opened.
  static Expected<RowFile> open(const std::filesystem::path& path);
  RowFile(RowFile&& other) noexcept;
  RowFile& operator=(RowFile&&) = delete;
  ~RowFile();

  // `row` ends with a newline. It is written some time later.
  void add(std::string_view row);
  // All that was added. Where the system refuses, e.g. on a full disk, the file keeps whole rows
  // only and the rest waits for the next call. Errors (io): just that.
  Expected<void> write();
  // The same, and to the disk.
  Expected<void> sync();
  // Rows left out since the last call.
  std::int64_t take_lost();

 private:
  RowFile(std::filesystem::path path, int descriptor, std::int64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // bytes of whole rows; negative: of no regular file
  std::string waiting_;
  bool refused_ = false;   // by the last write()
  std::int64_t lost_ = 0;  // rows
};

}  // namespace grapevine
