// LogHistogram: quantiles of many durations in little memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

namespace grapevine {

// Counts whole numbers, of which negative ones count as 0, in 64 buckets for each power of two. A
// quantile is the middle of a bucket: exact below 128, else within 1/128 of the value.
class LogHistogram {
 public:
  void add(std::int64_t value) {
    ++count_;
    ++buckets_[bucket_of(static_cast<std::uint64_t>(std::max<std::int64_t>(0, value)))];
  }
  std::uint64_t count() const { return count_; }

  // By nearest rank. REQUIRES: count() > 0, 0 < q <= 1.
  double quantile(double q) const {
    const auto rank = static_cast<std::uint64_t>(std::ceil(q * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    for (const auto& [bucket, count] : buckets_) {
      seen += count;
      if (seen >= rank) return middle_of(bucket);
    }
    return middle_of(buckets_.rbegin()->first);
  }

 private:
  static constexpr std::uint32_t kBits = 6;
  static constexpr std::uint32_t kPerPower = 1 << kBits;

  static std::uint32_t bucket_of(std::uint64_t value) {
    std::uint32_t shift = 0;
    while (value >> shift >= 2 * kPerPower) ++shift;
    return shift * kPerPower + static_cast<std::uint32_t>(value >> shift);
  }
  static double middle_of(std::uint32_t bucket) {
    if (bucket < 2 * kPerPower) return bucket;
    const std::uint32_t shift = bucket / kPerPower - 1;
    const double low = std::ldexp(kPerPower + bucket % kPerPower, static_cast<int>(shift));
    return low + (std::ldexp(1.0, static_cast<int>(shift)) - 1) / 2;
  }

  std::map<std::uint32_t, std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
};

}  // namespace grapevine
