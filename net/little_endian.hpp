// Integers as little-endian bytes, on any machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace grapevine::little_endian {

template <class T>
void put(std::vector<std::byte>& out, T value) {
  const auto bits = static_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<std::byte>((bits >> (8 * i)) & 0xff));
}

// REQUIRES: sizeof(T) bytes at `data`.
template <class T>
T get(const std::byte* data) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i)
    bits |= std::to_integer<std::uint64_t>(data[i]) << (8 * i);
  return static_cast<T>(bits);
}

}  // namespace grapevine::little_endian
