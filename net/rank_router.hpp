// Which ranks are up, what waits for the local ones, and what is to leave for other processes: all
// of a RemoteTransport but its wire.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

#include "messages/codec.hpp"
#include "net/mailbox.hpp"
#include "net/remote.hpp"

namespace grapevine {

// A local rank has left: the other process is to be told.
struct Departure {
  Rank rank = 0;
};

// A message, ready for the wire.
struct EncodedMessage {
  EncodedHeader header;
  std::vector<FrozenTensor> payload;
};

// What is to leave for another process, in this order.
struct Outgoing {
  std::int32_t process = 0;
  std::variant<EncodedMessage, Departure> what;
};

// Every rank is up until it is said to have left, and never comes back. A local rank that has not
// attached yet is up too: what arrives for it waits.
//
// One mutex, held for a queue operation at a time: a departure is ordered against the messages
// before it at every receiver, local or remote. Deliveries happen on the calling thread with no
// lock held, one at a time per receiver; an Inbox may send from inside them. Thread-safe.
class RankRouter {
 public:
  explicit RankRouter(Placement placement);

  const Placement& placement() const { return placement_; }

  // Delivers what has waited. Errors (bad_input): a rank of another process or none, attached
  // already, or has left.
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox);
  // Nothing where the rank is not attached. REQUIRES of all three: a local rank.
  void detach(Rank rank);
  TransportCounters counters(Rank rank) const;
  // From a local rank to any. Dropped and counted where either is not up. REQUIRES: what leaves the
  // process can be encoded, and its tensors are on the CPU.
  void send(Envelope envelope);

  // From the wire. REQUIRES: from a remote rank to a local one. Ignored where the sender is down.
  void arrived(Envelope envelope);
  // News of remote ranks; ignored where they are known already.
  void rank_left(Rank rank);
  void process_left(std::int32_t process);

  bool has_outgoing() const { return outgoing_count_.load(std::memory_order_relaxed) > 0; }
  std::deque<Outgoing> take_outgoing();

  // Nothing is delivered from now on, apart from deliveries under way.
  void close();

 private:
  struct RankState {
    bool up = true;
    Mailbox box;  // of local ranks; the others' stays empty
  };

  RankState& local(Rank rank);
  const RankState& local(Rank rank) const;
  RankState& known(Rank rank);
  void push_outgoing(Outgoing outgoing);
  Outgoing encoded(const Envelope& envelope) const;
  std::vector<Mailbox*> announce_departure(Rank rank);

  const Placement placement_;
  mutable std::mutex mutex_;
  std::vector<RankState> ranks_;   // guarded by mutex_; never resized
  std::deque<Outgoing> outgoing_;  // guarded by mutex_
  std::atomic<std::size_t> outgoing_count_{0};
};

}  // namespace grapevine
