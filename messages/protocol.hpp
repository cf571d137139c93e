// What ranks say to each other. A new exchange adds a struct here and a case in codec.cpp.
#pragma once
#include <cstdint>
#include <variant>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// Gossip: a share of the push-sum numerator together with the same share of its weight (Assran et
// al. 2019, Alg. 1). `w` travels always: irregular graphs, lost peers and a changing number of
// peers stay correct only because of it.
struct Share {
  std::int64_t round = 0;  // the sender's gossip round, from 0
  double w = 0;
  FrozenTensor x;  // [d]
};

// Gossip: the sender takes part in no round after `last_round`. It still accepts late shares, so
// that no mass is lost, but nobody may wait for it any more.
struct Leave {
  std::int64_t last_round = 0;
};

// A piece of a collective operation (ring all-reduce and friends).
struct Chunk {
  std::int64_t operation = 0;  // which collective of this role, from 0
  std::int32_t round = 0;      // communication round inside the operation
  std::int32_t index = 0;      // which slice of the flat tensor
  FrozenTensor data;
};

// Consistent cut (Chandy & Lamport 1985): everything that this sender sent before the marker
// belongs to checkpoint `id`, everything after it does not. Consumed by the Peer; roles never see
// it.
struct Marker {
  std::int64_t id = 0;
};

using Payload = std::variant<Share, Leave, Chunk, Marker>;

}  // namespace grapevine
