// The parts common to all collectives: outgoing messages, and a store for early chunks.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/awaited.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

// A message that the caller has to send, in the order returned.
struct OutgoingChunk {
  Rank to = 0;
  Chunk chunk;
};

// The same, of any kind.
struct OutgoingMessage {
  Rank to = 0;
  Payload payload;
};

// Appends messages of one kind.
template <class Message>
void append(std::vector<OutgoingMessage>& out, std::vector<Message> messages) {
  out.reserve(out.size() + messages.size());
  for (Message& message : messages) out.push_back({message.to, std::move(message.chunk)});
}

// Whether `from` has the position that its vector names.
inline bool is_from(const std::vector<Rank>& ranks, const PackedChunk& chunk, Rank from) {
  return chunk.sender >= 0 && chunk.sender < static_cast<std::int32_t>(ranks.size()) &&
         ranks[static_cast<std::size_t>(chunk.sender)] == from;
}

// What a saved operation of one rank belongs to. Errors (bad_input): it is of other ranks, another
// position or operation.
void identity_fields(Archive& a, const std::vector<Rank>& ranks, std::int32_t position,
                     std::int64_t operation);

// 0 .. count - 1.
std::vector<Rank> all_ranks(std::int32_t count);

// Chunks of operations that this rank has not started yet. A neighbour may be one operation ahead:
// it needs no message of this rank to begin the next one. Chunks come out in the order they
// arrived, so that a FIFO link stays FIFO. Not thread-safe.
class CollectiveInbox {
 public:
  void hold(Chunk chunk);
  // All held chunks of `operation`; they are held no longer.
  std::vector<Chunk> take(std::int64_t operation);

  // Errors (bad_input): entries that are missing or of a wrong type.
  void fields(Archive& a);

 private:
  std::map<std::int64_t, std::vector<Chunk>> held_;  // by operation; no empty lists
};

}  // namespace grapevine
