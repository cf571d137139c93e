// MessageFlows: which messages get an arrow, from their sending to their use.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "messages/trace/trace_record.hpp"

namespace grapevine {

enum class FlowRole : std::uint8_t { none, begin, step, end };

// A message, named by its sender and the sender's count of messages.
struct MessageName {
  Rank sender = -1;
  std::uint64_t sequence = 0;
};
// Of a record of `sent`, `received`, `applied` or `wait_end`.
MessageName message_of(const TraceRecord& record);

// A flow leads from `sent` over `received` and over a `wait_end` to `applied`; it ends at the last
// of these that the trace has. Only messages with a receipt have one. A reader of one pass cannot
// know at the sending whether a receipt follows, nor at a receipt whether the message is applied
// later. So all records are learnt in a first pass. Buffering sendings until their receipt instead
// would write a track's events out of order, and keep those of lost messages to the end.
//
// Memory: four bits for a message. Not thread-safe.
class MessageFlows {
 public:
  explicit MessageFlows(std::int32_t ranks);

  // First pass: all records in their order.
  void learn(const TraceRecord& record);
  // Second pass: the same records in the same order. Of a message the roles are begin, any number
  // of steps, end; or none at all.
  FlowRole use(const TraceRecord& record);

 private:
  static constexpr std::uint64_t kBlock = 4096;  // messages
  using Block = std::array<std::uint8_t, kBlock / 2>;

  // The four bits of a message; null for none.
  struct Bits {
    std::uint8_t* byte = nullptr;
    int shift = 0;
    bool has(int bit) const { return byte != nullptr && (*byte >> shift & bit) != 0; }
    void set(int bit) { *byte = static_cast<std::uint8_t>(*byte | bit << shift); }
    void clear(int bit) { *byte = static_cast<std::uint8_t>(*byte & ~(bit << shift)); }
  };
  Bits find(const TraceRecord& record, bool add);

  std::vector<std::unordered_map<std::uint64_t, std::unique_ptr<Block>>> blocks_;  // by sender
};

}  // namespace grapevine
