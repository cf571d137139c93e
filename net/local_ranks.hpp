// The ranks of this process, as a transport between processes delivers to them.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/inproc/mailbox.hpp"
#include "net/remote.hpp"

namespace grapevine {

// Keeps the messages for each local rank until it attaches, delivers in order and one at a
// time per rank on the calling thread, with no lock held: an Inbox may cause further
// deliveries from inside deliver(), they then follow it. Knows which ranks of the world are down
// and reports it exactly once to every local rank, after the last message of the lost one. An
// exception of an Inbox is logged, and its message is lost: it must not end the event loop that
// serves the other ranks. Thread-safe.
class LocalRanks {
 public:
  explicit LocalRanks(Placement placement);

  const Placement& placement() const { return placement_; }

  // Delivers the waiting messages. Errors (bad_input): no local rank, attached already, or has
  // left.
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox);
  // Pending deliveries are dropped, the other local ranks get peer_down. False where the rank was
  // not attached, which changes nothing.
  bool detach(Rank rank);
  // A rank of any process is lost; nothing happens where it was before. True where it is reported
  // to a local rank. `reason` as Inbox::peer_down()'s.
  bool peer_down(Rank peer, const std::string& reason);
  // As peer_down() of all ranks of another process.
  bool process_down(std::int32_t process, const std::string& reason);
  // The ranks of another process are up again: their messages are delivered after the reports of
  // their loss.
  void process_up(std::int32_t process);
  // The ranks of another process are down, which is not reported to local ranks: the process was
  // lost before this one joined.
  void process_absent(std::int32_t process);
  // Whether a rank of another process is up.
  bool is_up(std::int32_t process) const;

  // REQUIRES (GRAPEVINE_CHECK) of a message that is to be sent: from a local rank to one that
  // exists.
  void check_ranks(const Envelope& envelope) const;
  // Between two local ranks; counted for the sender.
  void send(Envelope envelope);
  // Whether a message of `bytes` from a local rank to another process may go; counted as sent or
  // as dropped.
  bool admit(Rank from, Rank to, std::uint64_t bytes);
  // From another process. Dropped where the sender is down or the receiver has left.
  void deliver(Envelope envelope);

  TransportCounters counters(Rank rank) const;

  // Nothing is delivered from now on, apart from deliveries in progress.
  void close();

 private:
  std::size_t checked(Rank rank) const;
  void set_down(std::int32_t process, bool down);
  void check_local(Rank rank) const;
  bool may_send(Rank from, Rank to, std::uint64_t bytes);
  std::vector<Rank> announce(Rank peer, const std::string& reason);
  void deliver_pending(Rank rank);

  const Placement placement_;
  mutable std::mutex mutex_;  // held for a queue operation at a time
  // Guarded by mutex_, by rank, never resized. Mailboxes of remote ranks stay empty.
  std::vector<Mailbox> mailboxes_;
  std::vector<bool> down_;
};

}  // namespace grapevine
