// FileMark: what a checkpoint records of a file, so that any damage shows.
#pragma once
#include <cstdint>
#include <vector>

namespace grapevine {

struct FileMark {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};
inline bool operator==(const FileMark& a, const FileMark& b) {
  return a.bytes == b.bytes && a.crc32 == b.crc32;
}

FileMark mark_of(const std::vector<char>& bytes);

}  // namespace grapevine
