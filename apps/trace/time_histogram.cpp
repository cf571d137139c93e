#include "apps/trace/time_histogram.hpp"

#include <algorithm>
#include <cmath>

namespace grapevine {
namespace {

constexpr std::size_t kBucketsPerOctave = 16;

// Below 16 ns each number has its own; then 16 buckets from each power of two to the next.
std::size_t bucket_of(std::int64_t time_ns) {
  auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(time_ns, 0));
  std::size_t octave = 0;
  for (; value >= 2 * kBucketsPerOctave; value /= 2) ++octave;
  return octave * kBucketsPerOctave + static_cast<std::size_t>(value);
}

std::int64_t middle_of(std::size_t bucket) {
  if (bucket < 2 * kBucketsPerOctave) return static_cast<std::int64_t>(bucket);
  const std::size_t octave = bucket / kBucketsPerOctave - 1;
  const auto low = static_cast<std::int64_t>(kBucketsPerOctave + bucket % kBucketsPerOctave);
  return (low << octave) + (std::int64_t{1} << octave) / 2;
}

}  // namespace

void TimeHistogram::add(std::int64_t time_ns) { add_to_bucket(bucket_of(time_ns), 1); }

void TimeHistogram::add(const TimeHistogram& other) {
  for (std::size_t i = 0; i < other.counts_.size(); ++i)
    if (other.counts_[i] > 0) add_to_bucket(other.first_ + i, other.counts_[i]);
}

void TimeHistogram::add_to_bucket(std::size_t bucket, std::int64_t times) {
  if (counts_.empty()) first_ = bucket;
  if (bucket < first_) {
    counts_.insert(counts_.begin(), first_ - bucket, 0);
    first_ = bucket;
  }
  if (bucket - first_ >= counts_.size()) counts_.resize(bucket - first_ + 1);
  counts_[bucket - first_] += times;
  count_ += times;
}

std::int64_t TimeHistogram::quantile_ns(double part) const {
  const auto rank = static_cast<std::int64_t>(std::ceil(part * static_cast<double>(count_)));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen > 0 && seen >= rank) return middle_of(first_ + i);
  }
  return 0;
}

}  // namespace grapevine
