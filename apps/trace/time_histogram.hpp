// TimeHistogram: how often a time was how long.
#pragma once
#include <cstdint>
#include <vector>

namespace grapevine {

// Buckets of at most 1/16 of their values. Memory: the range of the values, not their number.
class TimeHistogram {
 public:
  void add(std::int64_t time_ns);
  void add(const TimeHistogram& other);
  std::int64_t count() const { return count_; }
  // The middle of the bucket of the value that `part` of all are below or equal to; 0: no values.
  std::int64_t quantile_ns(double part) const;
  std::int64_t median_ns() const { return quantile_ns(0.5); }

 private:
  void add_to_bucket(std::size_t bucket, std::int64_t times);

  std::size_t first_ = 0;  // the bucket of counts_[0]
  std::vector<std::int64_t> counts_;
  std::int64_t count_ = 0;
};

}  // namespace grapevine
