// StepTimes: how long a rank's steps took, in bounded memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/random.hpp"

namespace grapevine {

// All of them up to kMost; of more a uniform sample of kMost, drawn from its own seed (algorithm R,
// Vitter 1985). Not thread-safe.
class StepTimes {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 11;

  explicit StepTimes(std::uint64_t seed = 0) : rng_(seed) {}

  void add(double seconds) {
    ++count_;
    if (sample_.size() < kMost) {
      sample_.push_back(seconds);
    } else if (const std::uint64_t place = rng_() % count_; place < kMost) {
      sample_[static_cast<std::size_t>(place)] = seconds;
    }
  }
  // In no particular order once there are more than kMost.
  const std::vector<double>& sample() const { return sample_; }

 private:
  Rng rng_;
  std::uint64_t count_ = 0;
  std::vector<double> sample_;
};

}  // namespace grapevine
