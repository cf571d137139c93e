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

// Bilateral averaging (Lian et al. 2018): the active rank sends its model, the passive one moves to
// the middle at once and answers with the difference that it took.
struct Swap {
  std::int64_t exchange = 0;  // of the active rank, from 0
  bool reply = false;
  FrozenTensor x;      // [d]: the active rank's model; in a reply (x_active - x_passive) / 2
  FrozenTensor steps;  // [ranks] int64: gradients that each rank has taken, as the sender knows
};

// Bilateral averaging: how far the ranks are, where no model goes along.
struct ProgressUpdate {
  FrozenTensor steps;  // [ranks] int64, as in Swap
};

// Consistent cut (Chandy & Lamport 1985): everything that this sender sent before the marker
// belongs to checkpoint `id`, everything after it does not. Consumed by the Peer; roles never see
// it.
struct Marker {
  std::int64_t id = 0;
};

// Partial collectives (Li et al. 2020): when an operation begins.
struct Activate {
  std::int64_t operation = 0;
  bool begun = false;  // else: the sender is ready, to the rank that counts
};

// A vector of d numbers as a compressor left it. Which tensors there are, and what the values mean,
// is the compressor's (algorithms/compressors); every rank of a job has the same one.
struct Packed {
  FrozenTensor indices;  // [k] int32 with the bits of a u32, strictly increasing; absent: all d
  FrozenTensor values;   // one per index, or all d of them in the compressor's type
  FrozenTensor scales;   // [blocks] f32, or absent
};

// A compressed vector on its way: in a collective operation, or as a gossiped difference.
struct PackedChunk {
  std::int64_t operation = 0;  // which collective of this role, or round of gossip, from 0
  std::int32_t round = 0;      // communication round inside the operation
  std::int32_t sender = 0;     // its position among those that take part
  Packed data;
};

// Parameter servers: the client is ready to exchange; servers grant in the order of arrival.
struct Ask {
  std::int64_t exchange = 0;  // of this client, from 1
};

// The client's turn: the server's slice of the central variable. The stamp has its version.
struct Grant {
  std::int64_t exchange = 0;
  FrozenTensor theta;  // [slice]
};

// What the client gives, under a grant or, where the rule needs none, as an offer that waits in the
// queue itself. The stamp has the version that the gradients were computed from.
struct Commit {
  std::int64_t exchange = 0;
  std::int64_t gradients = 1;  // in it
  FrozenTensor update;         // [slice]
};

// What became of a commit. The stamp has the server's version after it.
struct Receipt {
  std::int64_t exchange = 0;
  bool accepted = false;  // false: the grant had been taken back
  FrozenTensor value;     // [slice] what the rule gives back for an offer; else empty
};

// Inside a node: what its head lets the others compute the next gradient at, or end with.
struct Parameters {
  std::int64_t step = 0;  // of that gradient
  bool last = false;      // there is none: training is over
  double epoch = 0;       // the head's clock
  FrozenTensor x;         // [d]
};

using Payload = std::variant<Share, Leave, Chunk, Marker, Swap, ProgressUpdate, Activate,
                             PackedChunk, Ask, Grant, Commit, Receipt, Parameters>;

}  // namespace grapevine
