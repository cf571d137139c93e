#include "messages/trace/clock_fit.hpp"

#include <algorithm>

namespace grapevine {
namespace {

constexpr std::int64_t kBurstNs = 5'000'000'000;  // samples of one burst are nearer than this

std::int64_t round_trip(const ClockSample& sample) { return sample.received_ns - sample.sent_ns; }

}  // namespace

ClockFit::ClockFit(std::int64_t offset_ns) : knots_{{0, offset_ns}} {}

ClockFit::ClockFit(const std::vector<ClockSample>& samples) {
  for (auto first = samples.begin(); first != samples.end();) {
    const auto end = std::find_if(first, samples.end(), [first](const ClockSample& sample) {
      return sample.sent_ns - first->sent_ns > kBurstNs;
    });
    const auto best = std::min_element(
        first, end, [](const auto& a, const auto& b) { return round_trip(a) < round_trip(b); });
    const std::int64_t head_ns = best->sent_ns + round_trip(*best) / 2;
    if (knots_.empty() || best->remote_ns > knots_.back().remote_ns)
      knots_.push_back({best->remote_ns, head_ns - best->remote_ns});
    first = end;
  }
}

void ClockFit::shift_by(std::int64_t offset_ns) {
  if (knots_.empty()) knots_.push_back({});
  for (Knot& knot : knots_) knot.offset_ns += offset_ns;
}

std::int64_t ClockFit::to_head(std::int64_t remote_ns) const {
  if (knots_.empty()) return remote_ns;
  if (knots_.size() == 1) return remote_ns + knots_.front().offset_ns;
  // Before the first knot and after the last one, the line through the nearest two is continued.
  auto right =
      std::lower_bound(knots_.begin() + 1, knots_.end() - 1, remote_ns,
                       [](const Knot& knot, std::int64_t time) { return knot.remote_ns < time; });
  const Knot &a = *(right - 1), &b = *right;
  const double share =
      static_cast<double>(remote_ns - a.remote_ns) / static_cast<double>(b.remote_ns - a.remote_ns);
  const double offset = static_cast<double>(b.offset_ns - a.offset_ns) * share;
  return remote_ns + a.offset_ns + static_cast<std::int64_t>(offset);
}

}  // namespace grapevine
