// Lists of whole numbers in few bytes: what messages between processes have of each rank.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace grapevine {

// A list is its length, its least value and the difference of each value from it, in as many bits
// as the largest difference needs (frame of reference: Goldstein, Ramakrishnan & Shaft,
// "Compressing relations and indexes", 1998). Where the steps from each value to the next take
// fewer bytes so, they are written in the place of the values: ranks without a gap take seven
// bytes. Equal lists have equal bytes. n values take at most 8 n bytes and kPackedHead more.
using Integers = std::vector<std::int64_t>;

inline constexpr std::size_t kPackedHead = 32;
// Of a list that is read, twice the ranks of any run: a longer one is refused.
inline constexpr std::size_t kMostPacked = std::size_t{1} << 14;

// Appends the list to `bytes`. REQUIRES: at most kMostPacked values.
void pack(const Integers& values, std::string& bytes);
// The same in at most `most_bytes` and kPackedHead more: where that is too little, the differences
// from the least value are rounded down to multiples of a power of two, as small a one as fits.
// REQUIRES: also a bit for each value.
void pack_within(const Integers& values, std::size_t most_bytes, std::string& bytes);

// Reads lists in the order in which they were appended.
class PackedReader {
 public:
  // `bytes` outlives this object.
  explicit PackedReader(std::string_view bytes) : rest_(bytes) {}

  // Nothing where the bytes are no list, or end before it does. Allocates at most 64 bytes for each
  // byte that has arrived, and 8 kMostPacked at most where the values, or the steps from each to
  // the next, are all equal: such values take no bytes of their own.
  std::optional<Integers> take();
  bool at_end() const { return rest_.empty(); }

 private:
  std::optional<std::uint8_t> take_byte();
  std::optional<std::uint64_t> take_number();
  // The differences, behind `lead` zeros.
  std::optional<Integers> take_differences(std::size_t lead, std::size_t count, int bits);

  std::string_view rest_;
};

}  // namespace grapevine
