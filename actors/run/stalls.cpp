#include "actors/run/stalls.hpp"

#include <algorithm>
#include <utility>

namespace grapevine {

MessageStalls::MessageStalls(Rank rank, const std::vector<Stall>& stalls) {
  for (const Stall& stall : stalls)
    if ((stall.kind == Stall::Kind::link && stall.peer == rank) ||
        (stall.kind == Stall::Kind::server && stall.rank == rank))
      stalls_.push_back(stall);
}

std::optional<Duration> MessageStalls::on_link(Envelope& envelope) {
  return keep(envelope.from, envelope, Stall::Kind::link);
}

std::optional<Duration> MessageStalls::at_server(Envelope& envelope) {
  return keep(kAny, envelope, Stall::Kind::server);
}

// What follows a message that is held back stays behind it.
std::optional<Duration> MessageStalls::keep(Rank from, Envelope& envelope, Stall::Kind kind) {
  if (stalls_.empty() && held_.empty()) return std::nullopt;
  const auto begins = std::find_if(stalls_.begin(), stalls_.end(), [&](const Stall& stall) {
    return stall.kind == kind && (kind == Stall::Kind::server || stall.rank == from) &&
           envelope.stamp.step >= stall.step;
  });
  const auto held = held_.find(from);
  const bool behind = held != held_.end() && !held->second.empty();
  if (!behind && begins == stalls_.end()) return std::nullopt;
  held_[from].push_back(std::move(envelope));
  if (behind) return Duration::zero();
  const Duration length = begins->length;
  stalls_.erase(begins);
  return length;
}

bool MessageStalls::holds() const {
  return std::any_of(held_.begin(), held_.end(),
                     [](const auto& of_sender) { return !of_sender.second.empty(); });
}

std::deque<Envelope> MessageStalls::release(Rank from) {
  return std::exchange(held_[from], std::deque<Envelope>());
}

std::int64_t MessageStalls::forget(Rank from) {
  const auto held = held_.find(kAny);
  if (held == held_.end()) return 0;
  std::deque<Envelope>& kept = held->second;
  const auto gone = std::remove_if(kept.begin(), kept.end(),
                                   [from](const Envelope& one) { return one.from == from; });
  const std::int64_t count = kept.end() - gone;
  kept.erase(gone, kept.end());
  return count;
}

}  // namespace grapevine
