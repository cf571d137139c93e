// FileMark: what a checkpoint records of a file, so that any damage shows.
#pragma once
#include <cstdint>
#include <vector>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

struct FileMark {
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};
inline bool operator==(const FileMark& a, const FileMark& b) {
  return a.bytes == b.bytes && a.crc32 == b.crc32;
}

FileMark mark_of(const std::vector<char>& bytes);
// Of the bytes of all parts together, in host memory.
FileMark mark_of_parts(const std::vector<FrozenTensor>& parts);

}  // namespace grapevine
