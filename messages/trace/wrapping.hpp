// Sums of times that a file states: any values, so that they may lie beyond 64 bits.
#pragma once
#include <cstdint>

namespace grapevine {

// a + b and a - b, modulo 2^64: inverses of each other for any values.
inline std::int64_t wrapped_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
inline std::int64_t wrapped_difference(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

}  // namespace grapevine
