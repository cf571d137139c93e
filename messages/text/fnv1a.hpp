// FNV-1a, 64 bits: a hash that is the same in every process and every build, which std::hash does
// not promise. Not for secrets.
#pragma once
#include <cstdint>
#include <string_view>

namespace grapevine {

inline constexpr std::uint64_t kFnv1aStart = 0xcbf29ce484222325;

// The hash of the bytes that `hash` covers, followed by `bytes`.
inline std::uint64_t fnv1a(std::string_view bytes, std::uint64_t hash = kFnv1aStart) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace grapevine
