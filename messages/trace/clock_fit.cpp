#include "messages/trace/clock_fit.hpp"

#include <algorithm>

#include "messages/trace/wrapping.hpp"

namespace grapevine {
namespace {

// REQUIRES: from <= to.
std::uint64_t distance(std::int64_t from, std::int64_t to) {
  return static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from);
}

// The nearest whole number of 64 bits.
std::int64_t whole(double number) {
  constexpr double kMost = 9223372036854774784.0;  // the last double below 2^63
  return static_cast<std::int64_t>(std::clamp(number, -kMost, kMost));
}

}  // namespace

bool of_one_burst(std::int64_t first_ns, std::int64_t sent_ns) {
  return distance(first_ns, sent_ns) <= kClockBurstNs;
}

std::int64_t round_trip(const ClockSample& sample) {
  return wrapped_difference(sample.received_ns, sample.sent_ns);
}

ClockFit::ClockFit(std::int64_t offset_ns) : knots_{{0, offset_ns}} {}

ClockFit::ClockFit(const std::vector<ClockSample>& samples) {
  for (auto first = samples.begin(); first != samples.end();) {
    const auto end = std::find_if(first, samples.end(), [first](const ClockSample& sample) {
      return !of_one_burst(first->sent_ns, sample.sent_ns);
    });
    const auto best = std::min_element(
        first, end, [](const auto& a, const auto& b) { return round_trip(a) < round_trip(b); });
    const std::int64_t coordinator_ns = wrapped_sum(best->sent_ns, round_trip(*best) / 2);
    if (knots_.empty() || best->remote_ns > knots_.back().remote_ns)
      knots_.push_back({best->remote_ns, wrapped_difference(coordinator_ns, best->remote_ns)});
    first = end;
  }
}

void ClockFit::shift_by(std::int64_t offset_ns) {
  if (knots_.empty()) knots_.push_back({});
  for (Knot& knot : knots_) knot.offset_ns = wrapped_sum(knot.offset_ns, offset_ns);
}

std::int64_t ClockFit::to_coordinator(std::int64_t remote_ns) const {
  if (knots_.empty()) return remote_ns;
  if (knots_.size() == 1) return wrapped_sum(remote_ns, knots_.front().offset_ns);
  // Before the first knot and after the last one, the line through the nearest two is continued.
  auto right =
      std::lower_bound(knots_.begin() + 1, knots_.end() - 1, remote_ns,
                       [](const Knot& knot, std::int64_t time) { return knot.remote_ns < time; });
  const Knot &a = *(right - 1), &b = *right;
  const double share = static_cast<double>(wrapped_difference(remote_ns, a.remote_ns)) /
                       static_cast<double>(distance(a.remote_ns, b.remote_ns));
  const double offset = static_cast<double>(wrapped_difference(b.offset_ns, a.offset_ns)) * share;
  return wrapped_sum(wrapped_sum(remote_ns, a.offset_ns), whole(offset));
}

}  // namespace grapevine
