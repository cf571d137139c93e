#include "algorithms/parts/service_meter.hpp"

#include <algorithm>
#include <cmath>

#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr double kShortest = 1e-6;  // seconds: the upper end of the first bucket
constexpr double kPerOctave = 4;

}  // namespace

double jain_index(const std::vector<std::int64_t>& counts) {
  double sum = 0, squares = 0;
  for (const std::int64_t c : counts) {
    sum += static_cast<double>(c);
    squares += static_cast<double>(c) * static_cast<double>(c);
  }
  return squares == 0 ? 1 : sum * sum / (static_cast<double>(counts.size()) * squares);
}

void DurationHistogram::add(Duration duration) {
  const double seconds = to_seconds(duration);
  const double octaves = seconds > kShortest ? std::log2(seconds / kShortest) : 0;
  const auto bucket = static_cast<std::size_t>(std::ceil(octaves * kPerOctave));
  ++buckets_[std::min(bucket, kBuckets - 1)];
  ++count_;
  max_ = std::max(max_, seconds);
}

double DurationHistogram::percentile(double q) const {
  const auto rank = static_cast<std::int64_t>(std::ceil(q * static_cast<double>(count_)));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen > 0 && seen >= rank)
      return std::min(max_, kShortest * std::exp2(static_cast<double>(i) / kPerOctave));
  }
  return 0;
}

ServiceMeter::ServiceMeter(std::int32_t clients) : counts_(static_cast<std::size_t>(clients), 0) {
  GRAPEVINE_CHECK(clients >= 1, "a server without clients");
}

void ServiceMeter::served(std::int32_t client, std::int64_t arrival, Duration waited) {
  ++served_;
  if (arrival < latest_arrival_) ++inversions_;
  latest_arrival_ = std::max(latest_arrival_, arrival);
  waits_.add(waited);
  if (!open_) return;
  const auto change = [this](std::int32_t who, std::int64_t by) {
    std::int64_t& count = counts_[static_cast<std::size_t>(who)];
    squares_ += static_cast<double>((count + by) * (count + by) - count * count);
    count += by;
  };
  change(client, 1);
  window_.push_back(client);
  const auto full = static_cast<std::size_t>(kWindowPerClient) * counts_.size();
  if (window_.size() > full) {
    change(window_.front(), -1);
    window_.pop_front();
  }
  if (window_.size() < full) return;
  const auto sum = static_cast<double>(full);
  const double jain = sum * sum / (static_cast<double>(counts_.size()) * squares_);
  ++windows_;
  jain_sum_ += jain;
  jain_min_ = std::min(jain_min_, jain);
}

// Overlapping sections count once: each begins where the one before it ended, at the earliest.
void ServiceMeter::occupied(Timestamp begin, Timestamp end) {
  if (!any_section_) first_ = last_ = begin;
  any_section_ = true;
  begin = std::max(begin, last_);
  if (end > begin) busy_ += end - begin;
  last_ = std::max(last_, end);
}

StateDict ServiceMeter::measures() const {
  StateDict state;
  state.put("served", served_);
  state.put("inversions", inversions_);
  state.put("wait_p50_s", waits_.percentile(0.5));
  state.put("wait_p99_s", waits_.percentile(0.99));
  state.put("wait_max_s", waits_.max());
  state.put("occupancy", last_ > first_ ? to_seconds(busy_) / to_seconds(last_ - first_) : 0.0);
  state.put("windows", windows_);
  state.put("jain_mean", windows_ > 0 ? jain_sum_ / static_cast<double>(windows_) : 1.0);
  state.put("jain_min", jain_min_);
  return state;
}

}  // namespace grapevine
