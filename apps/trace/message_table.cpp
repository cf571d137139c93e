#include "apps/trace/message_table.hpp"

#include <algorithm>

namespace grapevine {
namespace {

// Of one link. More are not on their way, unless the receiver has left no trace.
constexpr std::size_t kMostOnTheirWay = std::size_t{1} << 16;

}  // namespace

std::uint64_t MessageTable::key(Rank from, Rank to) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 |
         static_cast<std::uint32_t>(to);
}

// Its index; the number of messages where it is not there.
std::size_t MessageTable::find(const Link& link, std::uint64_t sequence) {
  const auto begin = link.messages.begin() + static_cast<std::ptrdiff_t>(link.begin);
  const auto found = std::lower_bound(
      begin, link.messages.end(), sequence,
      [](const TracedMessage& message, std::uint64_t wanted) { return message.sequence < wanted; });
  const bool there = found != link.messages.end() && found->sequence == sequence;
  return there ? static_cast<std::size_t>(found - link.messages.begin()) : link.messages.size();
}

// Leaves at most so many.
void MessageTable::forget(Link& link, std::size_t most) {
  const std::size_t known = link.messages.size() - link.begin;
  if (known > most) link.begin += known - most;
  constexpr std::size_t kWorthMoving = 64;
  if (link.begin < kWorthMoving || 2 * link.begin < link.messages.size()) return;
  link.messages.erase(link.messages.begin(),
                      link.messages.begin() + static_cast<std::ptrdiff_t>(link.begin));
  link.begin = 0;
}

void MessageTable::sent(const TraceRecord& record) {
  Link& link = links_[key(record.rank, record.peer)];
  // A damaged trace may repeat numbers.
  while (link.messages.size() > link.begin && link.messages.back().sequence >= record.sequence)
    link.messages.pop_back();
  link.messages.push_back({record.sequence, record.time_ns, -1, record.payload, false});
  forget(link, kMostOnTheirWay);
}

std::optional<TracedMessage> MessageTable::received(const TraceRecord& record) {
  const auto found = links_.find(key(record.peer, record.rank));
  if (found == links_.end()) return std::nullopt;
  Link& link = found->second;
  const std::size_t at = find(link, record.sequence);
  if (at == link.messages.size()) return std::nullopt;
  link.messages[at].received_ns = record.time_ns;
  const auto resumed = resumed_ns_.find(record.rank);
  link.messages[at].of_checkpoint =
      resumed != resumed_ns_.end() && link.messages[at].sent_ns < resumed->second;
  const TracedMessage message = link.messages[at];
  forget(link, link.messages.size() - 1 - at + kept_);
  return message;
}

std::optional<TracedMessage> MessageTable::applied(const TraceRecord& record) const {
  const auto link = links_.find(key(record.peer, record.rank));
  if (link == links_.end() || record.sequence == 0) return std::nullopt;
  const std::size_t at = find(link->second, record.sequence);
  if (at == link->second.messages.size()) return std::nullopt;
  return link->second.messages[at];
}

}  // namespace grapevine
