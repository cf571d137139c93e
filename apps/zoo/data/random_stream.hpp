// Counter-based randomness for data: draw n of a stream depends on its key and n alone, so samples
// can be made in any order on any thread. No standard distributions: their results differ by
// library.
#pragma once
#include <cstdint>

#include "messages/random.hpp"

namespace grapevine {

// The SplitMix64 sequence that starts at `key`. Not thread-safe; cheap to make, one per sample.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t key) : key_(key) {}

  std::uint64_t bits() { return mix_seed(key_, counter_++); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  bool chance(double probability) { return uniform() < probability; }
  // 0 .. n - 1. REQUIRES: 0 < n < 2^32 (the bias is then below 2^-32).
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>((bits() >> 32) * static_cast<std::uint64_t>(n) >> 32);
  }
  double normal();  // N(0, 1)

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

// out[0 .. n - 1] ~ N(0, 1), 24 random bits each; a pure function of `key`, and a prefix of what a
// larger n gives. Ziggurat with 128 layers (Marsaglia, Tsang, "The Ziggurat Method for Generating
// Random Variables", 2000), about 3 ns a value. Thread-safe.
void fill_normal(std::uint64_t key, float* out, std::int64_t n);

}  // namespace grapevine
