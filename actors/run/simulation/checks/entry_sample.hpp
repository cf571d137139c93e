// EntrySample: a few entries of a long vector, spread over all of it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "messages/random.hpp"

namespace grapevine {

// The vector is cut into blocks of one length, the last one may be shorter; one entry of each is
// drawn by `seed`. Needs no memory: which entry it is, is computed. Equal arguments, equal samples.
class EntrySample {
 public:
  EntrySample() = default;  // of nothing
  // At most `most` of `d` entries: all where they fit. REQUIRES: d >= 0, most >= 1.
  EntrySample(std::int64_t d, std::int64_t most, std::uint64_t seed)
      : d_(d), block_(std::max<std::int64_t>(1, (d + most - 1) / most)), seed_(seed) {}

  std::size_t size() const { return static_cast<std::size_t>((d_ + block_ - 1) / block_); }

  // The entry of the vector that is number `slot` of the sample. REQUIRES: slot < size().
  std::int64_t entry(std::size_t slot) const {
    const std::int64_t begin = static_cast<std::int64_t>(slot) * block_;
    if (block_ == 1) return begin;
    const auto length = static_cast<std::uint64_t>(std::min(block_, d_ - begin));
    return begin + static_cast<std::int64_t>(mix_seed(seed_, slot) % length);
  }
  // Its number in the sample, or size() where it is not in there. REQUIRES: 0 <= entry < d.
  std::size_t slot_of(std::int64_t wanted) const {
    const auto slot = static_cast<std::size_t>(wanted / block_);
    return entry(slot) == wanted ? slot : size();
  }

 private:
  std::int64_t d_ = 0;
  std::int64_t block_ = 1;
  std::uint64_t seed_ = 0;
};

}  // namespace grapevine
