#include "messages/trace/repeated_frames.hpp"

#include <algorithm>

#include "messages/trace/clock_fit.hpp"
#include "messages/trace/trace_format.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMostBursts = 64;        // of one clock
constexpr std::size_t kLeastBursts = 2;        // a line goes through them
constexpr std::uint64_t kMostClockBytes = 64;  // of a frame

}  // namespace

// Half of the room is for the clocks, the other half for the changes. An even number: see add().
std::size_t RepeatedFrames::most_bursts() const {
  const std::uint64_t of_each = bytes_ / 2 / kMostClockBytes / clocks_.size() / 2 * 2;
  return std::clamp(static_cast<std::size_t>(of_each), kLeastBursts, kMostBursts);
}

void RepeatedFrames::add(const ClockSample& sample) {
  std::vector<Burst>& bursts = clocks_[{sample.process, sample.zero_ns}];
  if (!bursts.empty() && of_one_burst(bursts.back().begin_ns, sample.sent_ns)) {
    ClockSample& best = bursts.back().best;
    if (round_trip(sample) < round_trip(best)) best = sample;
    return;
  }
  bursts.push_back({sample.sent_ns, sample});
  const std::size_t most = most_bursts();
  while (bursts.size() > most) {
    // The first and the newest stay.
    std::vector<Burst> kept;
    for (std::size_t i = 0; i < bursts.size(); ++i)
      if (i % 2 == 0 || i + 1 == bursts.size()) kept.push_back(bursts[i]);
    bursts = std::move(kept);
  }
}

void RepeatedFrames::add(const SettingsChange& change) {
  std::string& frame = changes_.emplace_back();
  append_change(frame, change);
  change_bytes_ += frame.size();
  while (changes_.size() > 1 && change_bytes_ > bytes_ / 2) {
    change_bytes_ -= changes_.front().size();
    changes_.pop_front();
  }
}

std::string RepeatedFrames::frames() const {
  std::string frames;
  for (const auto& [clock, bursts] : clocks_)
    for (const Burst& burst : bursts) append_clock(frames, burst.best);
  for (const std::string& change : changes_) frames += change;
  return frames;
}

}  // namespace grapevine
