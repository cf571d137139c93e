#include "net/local_ranks.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <exception>
#include <string>
#include <utility>

#include "messages/check.hpp"
#include "messages/codec.hpp"

namespace grapevine {

LocalRanks::LocalRanks(Placement placement)
    : placement_(std::move(placement)),
      mailboxes_(placement_.process_of.size()),
      down_(placement_.process_of.size(), false) {}

std::size_t LocalRanks::checked(Rank rank) const {
  GRAPEVINE_CHECK(rank >= 0 && rank < placement_.world_size(), "rank ", rank, " in a world of ",
                  placement_.world_size());
  return static_cast<std::size_t>(rank);
}

Expected<void> LocalRanks::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  GRAPEVINE_CHECK(inbox != nullptr, "attach of rank ", rank, " without an inbox");
  const std::string what = "cannot attach rank " + std::to_string(rank);
  if (rank < 0 || rank >= placement_.world_size())
    return bad_input(fmt::format("{} to a transport of {} ranks: use 0..{}", what,
                                 placement_.world_size(), placement_.world_size() - 1));
  if (!placement_.is_local(rank))
    return bad_input(fmt::format("{} here: it is in process {}, this is process {}", what,
                                 placement_.process_of[checked(rank)], placement_.own_process));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (down_[checked(rank)]) return bad_input(what + ": it has left, and a rank cannot return");
    Mailbox& box = mailboxes_[checked(rank)];
    if (box.inbox != nullptr)
      return bad_input(what + ": it is attached already; give each process its own ranks");
    box.inbox = std::move(inbox);
  }
  deliver_pending(rank);
  return {};
}

bool LocalRanks::detach(Rank rank) {
  check_local(rank);
  std::vector<Rank> notified;
  std::shared_ptr<Inbox> leaving;  // destroyed after the lock is released, as are the messages
  std::deque<Mailbox::Item> undelivered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Mailbox& box = mailboxes_[checked(rank)];
    if (box.inbox == nullptr) return false;
    leaving.swap(box.inbox);
    undelivered.swap(box.items);
    notified = announce(rank, "");
  }
  for (const Rank other : notified) deliver_pending(other);
  return true;
}

bool LocalRanks::peer_down(Rank peer, const std::string& reason) {
  std::vector<Rank> notified;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    notified = announce(peer, reason);
  }
  for (const Rank rank : notified) deliver_pending(rank);
  return !notified.empty();
}

bool LocalRanks::process_down(std::int32_t process, const std::string& reason) {
  bool notified = false;
  for (Rank rank = 0; rank < placement_.world_size(); ++rank)
    if (placement_.process_of[checked(rank)] == process)
      notified = peer_down(rank, reason) || notified;
  return notified;
}

void LocalRanks::process_up(std::int32_t process) { set_down(process, false); }

void LocalRanks::process_absent(std::int32_t process) { set_down(process, true); }

bool LocalRanks::is_up(std::int32_t process) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Rank rank = 0; rank < placement_.world_size(); ++rank)
    if (placement_.process_of[checked(rank)] == process && !down_[checked(rank)]) return true;
  return false;
}

void LocalRanks::set_down(std::int32_t process, bool down) {
  GRAPEVINE_CHECK(process != placement_.own_process, "the ranks of this process");
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Rank rank = 0; rank < placement_.world_size(); ++rank)
    if (placement_.process_of[checked(rank)] == process) down_[checked(rank)] = down;
}

// The local ranks to which it is reported now. REQUIRES: mutex_ is held.
std::vector<Rank> LocalRanks::announce(Rank peer, const std::string& reason) {
  std::vector<Rank> notified;
  if (down_[checked(peer)]) return notified;
  down_[checked(peer)] = true;
  for (Rank rank = 0; rank < placement_.world_size(); ++rank) {
    if (!placement_.is_local(rank) || down_[checked(rank)]) continue;
    mailboxes_[checked(rank)].items.emplace_back(PeerDown{peer, reason});
    notified.push_back(rank);
  }
  return notified;
}

// REQUIRES: mutex_ is held.
bool LocalRanks::may_send(Rank from, Rank to, std::uint64_t bytes) {
  Mailbox& sender = mailboxes_[checked(from)];
  if (sender.inbox == nullptr || down_[checked(to)]) {
    ++sender.sent.messages_dropped;
    return false;
  }
  ++sender.sent.messages_sent;
  sender.sent.bytes_sent += bytes;
  return true;
}

void LocalRanks::check_local(Rank rank) const {
  checked(rank);
  GRAPEVINE_CHECK(placement_.is_local(rank), "rank ", rank, " is not in this process");
}

void LocalRanks::check_ranks(const Envelope& envelope) const {
  checked(envelope.to);
  check_local(envelope.from);
}

bool LocalRanks::admit(Rank from, Rank to, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return may_send(from, to, bytes);
}

void LocalRanks::send(Envelope envelope) {
  const std::uint64_t bytes = wire_size(envelope);
  const Rank to = envelope.to;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!may_send(envelope.from, to, bytes)) return;
    mailboxes_[checked(to)].items.emplace_back(std::move(envelope));
  }
  deliver_pending(to);
}

void LocalRanks::deliver(Envelope envelope) {
  const Rank to = envelope.to;
  check_local(to);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (down_[checked(envelope.from)] || down_[checked(to)]) return;
    mailboxes_[checked(to)].items.emplace_back(std::move(envelope));
  }
  deliver_pending(to);
}

TransportCounters LocalRanks::counters(Rank rank) const {
  check_local(rank);
  const std::lock_guard<std::mutex> lock(mutex_);
  return mailboxes_[checked(rank)].sent;
}

void LocalRanks::close() {
  std::vector<Mailbox> dropped(mailboxes_.size());  // destroyed after the lock is released
  const std::lock_guard<std::mutex> lock(mutex_);
  for (std::size_t rank = 0; rank < mailboxes_.size(); ++rank) {
    dropped[rank].inbox.swap(mailboxes_[rank].inbox);
    dropped[rank].items.swap(mailboxes_[rank].items);
    down_[rank] = true;
  }
}

void LocalRanks::deliver_pending(Rank rank) {
  for (;;) {
    try {
      return grapevine::deliver_pending(mutex_, mailboxes_[checked(rank)]);
    } catch (const std::exception& e) {
      spdlog::error("rank {}: the inbox failed: {}", rank, e.what());
    }
  }
}

}  // namespace grapevine
