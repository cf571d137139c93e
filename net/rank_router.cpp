#include "net/rank_router.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

RankRouter::RankRouter(Placement placement)
    : placement_(std::move(placement)), ranks_(placement_.process_of.size()) {}

RankRouter::RankState& RankRouter::known(Rank rank) {
  GRAPEVINE_CHECK(rank >= 0 && rank < placement_.world_size(), "rank ", rank, " in a world of ",
                  placement_.world_size());
  return ranks_[static_cast<std::size_t>(rank)];
}

RankRouter::RankState& RankRouter::local(Rank rank) {
  RankState& state = known(rank);
  GRAPEVINE_CHECK(placement_.is_local(rank), "rank ", rank, " lives in another process");
  return state;
}

const RankRouter::RankState& RankRouter::local(Rank rank) const {
  return const_cast<RankRouter*>(this)->local(rank);  // NOLINT: only looks the element up
}

Expected<void> RankRouter::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  GRAPEVINE_CHECK(inbox != nullptr, "attach of rank ", rank, " without an inbox");
  const std::string name = "rank " + std::to_string(rank);
  if (rank < 0 || rank >= placement_.world_size())
    return bad_input("cannot attach " + name + " to a transport of " +
                     std::to_string(placement_.world_size()) + " ranks: use 0.." +
                     std::to_string(placement_.world_size() - 1));
  if (!placement_.is_local(rank))
    return bad_input(name + " lives in process " +
                     std::to_string(placement_.process_of[static_cast<std::size_t>(rank)]) +
                     ", this is process " + std::to_string(placement_.own_process) +
                     ": attach it there");
  RankState& state = local(rank);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!state.up)
      return bad_input(name + " has left this transport: a new life takes a new transport");
    if (state.box.inbox != nullptr)
      return bad_input(name +
                       " is attached already: detach it first, or give each process its own rank");
    state.box.inbox = std::move(inbox);
  }
  deliver_pending(mutex_, state.box);
  return {};
}

void RankRouter::detach(Rank rank) {
  std::vector<Mailbox*> told;
  std::shared_ptr<Inbox> leaving;  // destroyed after the lock is released, as are the messages
  std::deque<Mailbox::Item> undelivered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    RankState& state = local(rank);
    if (state.box.inbox == nullptr) return;
    leaving.swap(state.box.inbox);
    undelivered.swap(state.box.items);
    told = announce_departure(rank);
    for (std::int32_t p = 0; p < placement_.processes(); ++p)
      if (p != placement_.own_process) push_outgoing({p, Departure{rank}});
  }
  for (Mailbox* box : told) deliver_pending(mutex_, *box);
}

TransportCounters RankRouter::counters(Rank rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return local(rank).box.sent;
}

void RankRouter::send(Envelope envelope) {
  RankState& from = local(envelope.from);
  RankState& to = known(envelope.to);
  const bool stays = placement_.is_local(envelope.to);
  const std::uint64_t bytes = wire_size(envelope);
  Outgoing leaving = stays ? Outgoing{} : encoded(envelope);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (from.box.inbox == nullptr || !to.up) {
      ++from.box.sent.messages_dropped;
      return;
    }
    ++from.box.sent.messages_sent;
    from.box.sent.bytes_sent += bytes;
    if (stays)
      to.box.items.emplace_back(std::move(envelope));
    else
      push_outgoing(std::move(leaving));
  }
  if (stays) deliver_pending(mutex_, to.box);
}

Outgoing RankRouter::encoded(const Envelope& envelope) const {
  EncodedMessage message{encode_header(envelope), payload_of(envelope)};
  for (const FrozenTensor& t : message.payload)
    GRAPEVINE_CHECK(!t.defined() || t.device().is_cpu(), "send of a tensor on ", t.device());
  return {placement_.process_of[static_cast<std::size_t>(envelope.to)], std::move(message)};
}

void RankRouter::arrived(Envelope envelope) {
  RankState& to = local(envelope.to);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!known(envelope.from).up || !to.up) return;
    to.box.items.emplace_back(std::move(envelope));
  }
  deliver_pending(mutex_, to.box);
}

void RankRouter::rank_left(Rank rank) {
  std::vector<Mailbox*> told;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    told = announce_departure(rank);
  }
  for (Mailbox* box : told) deliver_pending(mutex_, *box);
}

void RankRouter::process_left(std::int32_t process) {
  for (Rank rank = 0; rank < placement_.world_size(); ++rank)
    if (placement_.process_of[static_cast<std::size_t>(rank)] == process) rank_left(rank);
}

std::deque<Outgoing> RankRouter::take_outgoing() {
  std::deque<Outgoing> taken;
  const std::lock_guard<std::mutex> lock(mutex_);
  taken.swap(outgoing_);
  outgoing_count_ = 0;
  return taken;
}

void RankRouter::close() {
  std::vector<std::shared_ptr<Inbox>> inboxes;  // destroyed after the lock is released
  std::deque<Mailbox::Item> undelivered;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (RankState& state : ranks_) {
    inboxes.push_back(std::move(state.box.inbox));
    std::move(state.box.items.begin(), state.box.items.end(), std::back_inserter(undelivered));
    state.box.inbox = nullptr;
    state.box.items.clear();
    state.up = false;
  }
}

// Called with mutex_ held.
void RankRouter::push_outgoing(Outgoing outgoing) {
  outgoing_.push_back(std::move(outgoing));
  ++outgoing_count_;
}

// Called with mutex_ held. Queues the news at every local rank; returns those to deliver to.
std::vector<Mailbox*> RankRouter::announce_departure(Rank rank) {
  std::vector<Mailbox*> told;
  if (!std::exchange(known(rank).up, false)) return told;
  for (Rank other = 0; other < placement_.world_size(); ++other) {
    RankState& receiver = known(other);
    if (!placement_.is_local(other) || !receiver.up) continue;
    receiver.box.items.emplace_back(PeerDown{rank});
    told.push_back(&receiver.box);
  }
  return told;
}

}  // namespace grapevine
