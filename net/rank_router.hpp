// What goes where in a RemoteTransport: to the local ranks, or to be sent to other processes.
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

// LocalRanks, and a queue of what leaves the process, in the order in which each thread brings it:
// a rank's departure lies behind all that the departing thread sent before. What another thread
// sends at that moment may lie behind it, and is dropped by its receiver. Thread-safe.
class RankRouter {
 public:
  explicit RankRouter(Placement placement) : local_(std::move(placement)) {}

  const Placement& placement() const { return local_.placement(); }

  // As LocalRanks'.
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox);
  void detach(Rank rank);
  TransportCounters counters(Rank rank) const { return local_.counters(rank); }

  // From a local rank to any. Dropped and counted where either is not up. REQUIRES: what leaves the
  // process can be encoded, and its tensors are on the CPU.
  void send(Envelope envelope);

  // From the wire. REQUIRES: from a remote rank to a local one. Ignored where the sender is down.
  void arrived(Envelope envelope) { local_.deliver(std::move(envelope)); }
  // News of remote ranks; ignored where they are known already.
  void rank_left(Rank rank) { local_.peer_down(rank, ""); }
  void process_left(std::int32_t process, const std::string& reason) {
    local_.process_down(process, reason);
  }

  bool has_outgoing() const { return outgoing_count_.load(std::memory_order_relaxed) > 0; }
  std::deque<Outgoing> take_outgoing();

  // Nothing is delivered from now on, apart from deliveries under way.
  void close() { local_.close(); }

 private:
  Outgoing encoded(const Envelope& envelope) const;
  void push(Outgoing outgoing);

  LocalRanks local_;
  std::mutex mutex_;
  std::deque<Outgoing> outgoing_;  // guarded by mutex_
  std::atomic<std::size_t> outgoing_count_{0};
};

}  // namespace grapevine
