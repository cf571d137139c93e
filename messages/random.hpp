// Seeded randomness. Every stream is named by (seed, purpose, index), so that adding one draw
// somewhere changes nothing elsewhere.
#pragma once
#include <cstdint>
#include <random>

namespace grapevine {

using Rng = std::mt19937_64;

// SplitMix64 finaliser (Steele, Lea, Flood 2014): spreads structured seeds over 64 bits.
inline std::uint64_t mix_seed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace grapevine
