// ServiceMeter: the fairness of a server's service. A part; its memory is constant.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "algorithms/state_dict.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Jain, Chiu & Hawe 1984: (sum c)^2 / (n sum c^2), in (0, 1]; 1 where all counts are equal and
// where there are none.
double jain_index(const std::vector<std::int64_t>& counts);

// Counts of durations in buckets of a ratio of 2^(1/4), from a microsecond up.
class DurationHistogram {
 public:
  void add(Duration duration);
  // Nearest-rank percentile, in seconds: the upper end of its bucket, at most max(). 0 where empty.
  double percentile(double q) const;
  double max() const { return max_; }
  std::int64_t count() const { return count_; }

 private:
  static constexpr std::size_t kBuckets = 160;  // 12 days
  std::array<std::int64_t, kBuckets> buckets_{};
  std::int64_t count_ = 0;
  double max_ = 0;
};

// The caller reports every service of one server, in order. Not thread-safe.
class ServiceMeter {
 public:
  // `clients` >= 1, numbered from 0.
  explicit ServiceMeter(std::int32_t clients);

  // `arrival`: the request's place in the order of arrival, from 0.
  void served(std::int32_t client, std::int64_t arrival, Duration waited);
  // A client was between pull and commit from `begin` to `end`; sections may overlap.
  void occupied(Timestamp begin, Timestamp end);
  // From here on services are unequal by nature: the windows end.
  void client_left() { open_ = false; }

  // served, inversions (services before an earlier arrival), wait_{p50,p99,max}_s, occupancy (in
  // [0, 1], of the time from the first section's begin to the last one's end), jain_mean and
  // jain_min over sliding windows of kWindowPerClient services per client (1 where there was none),
  // windows.
  StateDict measures() const;

 private:
  static constexpr std::int64_t kWindowPerClient = 10;

  std::vector<std::int64_t> counts_;  // in the window
  std::deque<std::int32_t> window_;
  double squares_ = 0;  // sum of counts_ squared
  bool open_ = true;
  std::int64_t windows_ = 0;
  double jain_sum_ = 0;
  double jain_min_ = 1;

  std::int64_t served_ = 0;
  std::int64_t latest_arrival_ = -1;
  std::int64_t inversions_ = 0;
  DurationHistogram waits_;
  Duration busy_{0};
  Timestamp first_{0}, last_{0};
  bool any_section_ = false;
};

}  // namespace grapevine
