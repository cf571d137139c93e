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
    if (state.inbox != nullptr)
      return bad_input(name +
                       " is attached already: detach it first, or give each process its own rank");
    state.inbox = std::move(inbox);
  }
  deliver_pending(state);
  return {};
}

void RankRouter::detach(Rank rank) {
  std::vector<RankState*> told;
  std::shared_ptr<Inbox> leaving;  // destroyed after the lock is released, as are the messages
  std::deque<Item> undelivered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    RankState& state = local(rank);
    if (state.inbox == nullptr) return;
    leaving.swap(state.inbox);
    undelivered.swap(state.items);
    told = announce_departure(rank);
    for (std::int32_t p = 0; p < placement_.processes(); ++p)
      if (p != placement_.own_process) push_outgoing({p, Departure{rank}});
  }
  for (RankState* receiver : told) deliver_pending(*receiver);
}

TransportCounters RankRouter::counters(Rank rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return local(rank).sent;
}

void RankRouter::send(Envelope envelope) {
  RankState& from = local(envelope.from);
  RankState& to = known(envelope.to);
  const bool stays = placement_.is_local(envelope.to);
  const std::uint64_t bytes = wire_size(envelope);
  Outgoing leaving = stays ? Outgoing{} : encoded(envelope);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (from.inbox == nullptr || !to.up) {
      ++from.sent.messages_dropped;
      return;
    }
    ++from.sent.messages_sent;
    from.sent.bytes_sent += bytes;
    if (stays)
      to.items.emplace_back(std::move(envelope));
    else
      push_outgoing(std::move(leaving));
  }
  if (stays) deliver_pending(to);
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
    to.items.emplace_back(std::move(envelope));
  }
  deliver_pending(to);
}

void RankRouter::rank_left(Rank rank) {
  std::vector<RankState*> told;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    told = announce_departure(rank);
  }
  for (RankState* receiver : told) deliver_pending(*receiver);
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
  std::deque<Item> undelivered;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (RankState& state : ranks_) {
    inboxes.push_back(std::move(state.inbox));
    std::move(state.items.begin(), state.items.end(), std::back_inserter(undelivered));
    state.inbox = nullptr;
    state.items.clear();
    state.up = false;
  }
}

// Called with mutex_ held.
void RankRouter::push_outgoing(Outgoing outgoing) {
  outgoing_.push_back(std::move(outgoing));
  ++outgoing_count_;
}

// Called with mutex_ held. Queues the news at every local rank; returns those to deliver to.
std::vector<RankRouter::RankState*> RankRouter::announce_departure(Rank rank) {
  std::vector<RankState*> told;
  if (!std::exchange(known(rank).up, false)) return told;
  for (Rank other = 0; other < placement_.world_size(); ++other) {
    RankState& receiver = known(other);
    if (!placement_.is_local(other) || !receiver.up) continue;
    receiver.items.emplace_back(Departure{rank});
    told.push_back(&receiver);
  }
  return told;
}

void RankRouter::deliver_pending(RankState& receiver) {
  if (!begin_delivering(receiver)) return;
  std::shared_ptr<Inbox> inbox;
  Item item;
  try {
    while (next_item(receiver, inbox, item)) {
      if (auto* envelope = std::get_if<Envelope>(&item))
        inbox->deliver(std::move(*envelope));
      else
        inbox->peer_down(std::get<Departure>(item).rank);
    }
  } catch (...) {  // else nobody would ever deliver to this rank again
    const std::lock_guard<std::mutex> lock(mutex_);
    receiver.delivering = false;
    throw;
  }
}

bool RankRouter::begin_delivering(RankState& receiver) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !std::exchange(receiver.delivering, true);
}

// Takes the oldest item; false, and `delivering` ends, where none waits or nobody is attached.
bool RankRouter::next_item(RankState& receiver, std::shared_ptr<Inbox>& inbox, Item& item) {
  inbox.reset();  // the last holder's destructor may send: not under the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (receiver.items.empty() || receiver.inbox == nullptr) {
    receiver.delivering = false;
    return false;
  }
  inbox = receiver.inbox;
  item = std::move(receiver.items.front());
  receiver.items.pop_front();
  return true;
}

}  // namespace grapevine
