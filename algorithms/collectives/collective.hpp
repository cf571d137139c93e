// The parts common to all collectives: outgoing messages, and a store for early chunks.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "algorithms/archive.hpp"
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
  std::size_t size() const;

  void fields(Archive& a);
  StateDict save() const { return save_state(*this); }
  // Errors (bad_input): entries that are missing or of a wrong type; the inbox is then as before.
  Expected<void> load(const StateDict& state) { return replace_state(*this, {}, state); }

 private:
  std::map<std::int64_t, std::vector<Chunk>> held_;  // by operation; no empty lists
};

}  // namespace grapevine
