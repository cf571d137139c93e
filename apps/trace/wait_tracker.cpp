#include "apps/trace/wait_tracker.hpp"

#include <utility>

namespace grapevine {

std::optional<TracedWait> WaitTracker::add(const TraceRecord& record) {
  OfRank& of = ranks_[static_cast<std::size_t>(record.rank)];
  of.last_ns = record.time_ns;
  switch (record.kind) {
    case EventKind::received:
      of.sender = record.peer;
      of.sequence = record.sequence;
      of.payload = record.payload;
      return std::nullopt;
    case EventKind::wait_begin:
      if (of.open) return std::nullopt;  // the role of a level waits inside another wait
      of.open.emplace();
      of.open->rank = record.rank;
      of.open->step = record.step;
      of.open->begin_ns = record.time_ns;
      of.open->awaited = record.peer;
      return std::nullopt;
    case EventKind::resumed:
      if (of.open) of.open->begin_ns = record.time_ns;
      return std::nullopt;
    case EventKind::view:
      return on_view(record);
    case EventKind::wait_end:
      break;
    default:
      return std::nullopt;
  }
  auto ended = cut_off(record.rank, record.time_ns);
  if (!ended) return std::nullopt;
  TracedWait& wait = *ended;
  wait.released_by = record.peer;
  wait.sequence = record.sequence;
  wait.payload = record.payload;
  const bool newest = record.peer == of.sender && record.sequence == of.sequence;
  if (newest && wait.payload == PayloadKind::none) wait.payload = of.payload;
  return ended;
}

// Another rank has noticed that `peer` is lost; a rank that takes part again begins anew. How long
// the lost one has waited since its last record nobody knows.
std::optional<TracedWait> WaitTracker::on_view(const TraceRecord& record) {
  if (record.peer < 0 || static_cast<std::size_t>(record.peer) >= ranks_.size())
    return std::nullopt;
  if (record.peer != record.rank)
    return cut_off(record.peer, ranks_[static_cast<std::size_t>(record.peer)].last_ns);
  ranks_[static_cast<std::size_t>(record.rank)] = {};
  return std::nullopt;
}

std::optional<TracedWait> WaitTracker::cut_off(Rank rank, std::int64_t time_ns) {
  auto wait = std::exchange(ranks_[static_cast<std::size_t>(rank)].open, std::nullopt);
  if (wait) wait->end_ns = time_ns;
  return wait;
}

}  // namespace grapevine
