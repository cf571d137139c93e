// The sending half of a link.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <variant>
#include <vector>

#include "net/queued_bytes.hpp"
#include "net/rank_router.hpp"
#include "net/shm/shm_arena.hpp"
#include "net/shm/shm_lender.hpp"
#include "net/shm/shm_records.hpp"
#include "net/shm/shm_ring.hpp"

namespace grapevine::shm {

// Puts messages into the queue, as far as it has room; others wait here, with their tensors.
//
// A tensor travels as a block of the arena: at no cost where it lies there already, else after one
// copy. At most `copied_bytes` of such copies are unread (one copy may be larger); further messages
// wait. Small tensors are copied into the queue, and so are, in fragments, tensors for which the
// arena has no memory: each message arrives, however many tensors the receiver keeps.
//
// One thread at a time. Errors of all functions (protocol): the receiver violates the protocol; the
// link is then of no use.
class Outbound {
 public:
  Outbound(std::shared_ptr<SharedMemory> outbox, int socket, std::shared_ptr<Lender> lender,
           std::shared_ptr<Arena> arena, std::uint64_t copied_bytes);

  Expected<void> push(std::variant<EncodedMessage, Departure> what);
  // Sends waiting messages, as far as there is room.
  Expected<void> pump();
  // Nothing is pushed any more.
  Expected<void> say_goodbye();

  bool waits() const { return !queue_.empty(); }
  // The bytes of the messages that wait here.
  QueuedBytes& queued_bytes() { return queued_bytes_; }
  bool said_goodbye() const { return ending_ && queue_.empty(); }
  // Changes while the receiver reads.
  std::uint64_t progress() const { return ring_.read(); }
  void beat() { ring_.box().beats.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Goodbye {};
  struct Retired {
    std::uint32_t segment = 0;
  };
  struct Item {
    std::variant<EncodedMessage, Departure, Goodbye, Retired> what;
    std::uint64_t bytes = 0;        // of a message
    std::vector<TensorPart> parts;  // ", once it is planned
    bool planned = false;
    bool begun = false;        // its record is sent; fragments may follow
    std::size_t tensor = 0;    // of them: the current one,
    std::uint64_t offset = 0;  // and the bytes of it that are sent
    std::uint64_t copied = 0;
  };
  struct Unread {
    std::uint64_t position = 0;  // in the queue, behind the record
    std::uint64_t bytes = 0;
  };

  Expected<bool> send_front();
  Expected<bool> send_message(Item& item, EncodedMessage& message);
  Expected<bool> may_copy(const EncodedMessage& message);
  void plan(Item& item, EncodedMessage& message);
  TensorPart plan_block(Item& item, FrozenTensor& tensor);
  bool pass_segment(std::uint32_t id);
  void retire_segments();
  Expected<bool> send_record(Item& item, EncodedMessage& message);
  Expected<bool> send_fragments(Item& item, const EncodedMessage& message);
  Expected<bool> send_number(RecordKind kind, std::uint32_t number);
  void ring_bell();

  RingWriter ring_;
  const int socket_;
  const std::shared_ptr<Lender> lender_;
  const std::shared_ptr<Arena> arena_;
  const std::uint64_t copied_bytes_;
  std::deque<Item> queue_;
  QueuedBytes queued_bytes_;
  std::set<std::uint32_t> passed_;  // segments that the receiver has
  std::deque<Unread> unread_;       // copies in the arena, oldest first
  std::uint64_t unread_bytes_ = 0;
  bool ending_ = false;
};

}  // namespace grapevine::shm
