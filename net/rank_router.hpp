// Routes the messages of every RemoteTransport: to local ranks, or to other processes.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "messages/codec.hpp"
#include "net/local_ranks.hpp"
#include "net/remote.hpp"

namespace grapevine {

// A local rank has left: to be announced to the other process.
struct Departure {
  Rank rank = 0;
};

// A message, ready for the wire.
struct EncodedMessage {
  EncodedHeader header;
  std::vector<FrozenTensor> payload;
};

// A message or departure that waits to be sent to another process, in the order of the queue.
struct Outgoing {
  std::int32_t process = 0;
  std::variant<EncodedMessage, Departure> what;
};

// Whether `process` may send a message of rank `from` to rank `to`, as it has. Errors (protocol).
// REQUIRES: `to` is a rank.
Expected<void> check_sender(const Placement& placement, std::int32_t process, Rank from, Rank to);
// Whether `process` may announce the departure of `rank`. Errors (protocol).
Expected<void> check_departure(const Placement& placement, std::int32_t process, Rank rank);

// LocalRanks, and a queue of outgoing messages, in the order of each thread: the departure of a
// rank follows all earlier messages of the departing thread. A concurrent message of another thread
// may follow the departure, and its receiver drops it. Thread-safe.
class RankRouter {
 public:
  explicit RankRouter(Placement placement) : local_(std::move(placement)) {}

  const Placement& placement() const { return local_.placement(); }

  // As LocalRanks'.
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox);
  void detach(Rank rank);
  TransportCounters counters(Rank rank) const { return local_.counters(rank); }
  bool by_reference(Rank from, Rank to) const {
    return placement().is_local(from) && placement().is_local(to);
  }

  // From a local rank to any. Dropped and counted where either is not up. REQUIRES: a message to
  // another process can be encoded, and its tensors are on the CPU; with `from_device` its only
  // tensor may be on a device.
  void send(Envelope envelope, bool from_device = false);

  // From the wire. REQUIRES: from a remote rank to a local one. Ignored where the sender is down.
  void arrived(Envelope envelope) { local_.deliver(std::move(envelope)); }
  // Loss of remote ranks; ignored where it is known already.
  void rank_left(Rank rank) { local_.peer_down(rank, ""); }
  // True where the loss is reported to a local rank. `reason` as Inbox::peer_down()'s.
  bool process_left(std::int32_t process, const std::string& reason) {
    return local_.process_down(process, reason);
  }

  // As LocalRanks'.
  void process_up(std::int32_t process) { local_.process_up(process); }
  void process_absent(std::int32_t process) { local_.process_absent(process); }
  bool is_up(std::int32_t process) const { return local_.is_up(process); }

  bool has_outgoing() const { return outgoing_count_.load(std::memory_order_relaxed) > 0; }
  std::deque<Outgoing> take_outgoing();

  // Nothing is delivered from now on, apart from deliveries in progress.
  void close() { local_.close(); }

 private:
  Outgoing encoded(const Envelope& envelope, bool from_device) const;
  void push(Outgoing outgoing);

  LocalRanks local_;
  std::mutex mutex_;
  std::deque<Outgoing> outgoing_;  // guarded by mutex_
  std::atomic<std::size_t> outgoing_count_{0};
};

}  // namespace grapevine
