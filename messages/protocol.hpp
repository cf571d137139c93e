// The messages between ranks. A new payload is added to: this file, PayloadKind (payload_kind.*),
// Wire in codec.cpp, payload_place.cpp and, if it has a vector of a model,
// device/model_vectors.hpp.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "messages/frozen_tensor.hpp"

namespace grapevine {

// Gossip: a share of the push-sum numerator together with the same share of its weight (Assran et
// al. 2019, Alg. 1). `w` is always sent: irregular graphs, lost peers and a changing number of
// peers are correct only with it.
struct Share {
  std::int64_t round = 0;  // the sender's gossip round, from 0
  double w = 0;
  FrozenTensor x;  // [d]
};

// Gossip: the sender takes part in no round after `last_round`. It still accepts late shares, so
// that no mass is lost, but its peers must not wait for it.
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
// the mean at once and answers with the difference that it added.
struct Swap {
  std::int64_t exchange = 0;  // of the active rank, from 0
  bool reply = false;
  FrozenTensor x;      // [d]: the active rank's model; in a reply (x_active - x_passive) / 2
  FrozenTensor steps;  // [ranks] int64: gradients of each rank, as far as the sender knows
};

// Bilateral averaging: the progress of the ranks, without a model.
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

// A vector of d numbers, packed by a compressor. The compressor (algorithms/compressors) defines
// the tensors and the meaning of the values; every rank of a job has the same one.
struct Packed {
  FrozenTensor indices;  // [k] int32 with the bits of a u32, strictly increasing; absent: all d
  FrozenTensor values;   // one per index, or all d of them in the compressor's type
  FrozenTensor scales;   // [blocks] f32, or absent
};

// A compressed vector: of a collective operation, of gossip (a difference), or of a commit.
struct PackedChunk {
  std::int64_t operation = 0;  // which collective of this role, or round of gossip, from 0
  std::int32_t round = 0;      // communication round inside the operation
  std::int32_t sender = 0;     // its position among the participants
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

// The client's update, under a grant or, where the rule needs none, as an offer that waits in the
// queue. The stamp has the version from which the gradients were computed.
struct Commit {
  std::int64_t exchange = 0;
  std::int64_t gradients = 1;  // in it
  FrozenTensor update;         // [slice]
};

// The answer to a commit. The stamp has the server's version after it.
struct Receipt {
  std::int64_t exchange = 0;
  bool accepted = false;  // false: the grant had been taken back
  FrozenTensor value;     // [slice] the rule's answer to an offer; else empty
};

// Inside a node: the head's parameters for the next gradient of all ranks, or the final ones.
struct Parameters {
  std::int64_t step = 0;  // of that gradient
  bool last = false;      // no gradient follows: training is over
  double epoch = 0;       // the head's clock
  FrozenTensor x;         // [d]
};

inline constexpr std::size_t kMaxExtensionType = 64;     // characters
inline constexpr std::size_t kMaxExtensionNumbers = 16;  // integers, and as many reals
inline constexpr std::size_t kMaxExtensionTensors = 8;

// A message of a role that is not part of the engine (register_role). The role defines the meaning
// of the numbers and tensors; several kinds of messages of one role differ in `type`. A receiver
// checks what it reads: the codec checks the limits alone.
struct Extension {
  std::string type;  // names it for people: 1..kMaxExtensionType letters, digits, '-', '_', '.'
  std::vector<std::int64_t> integers;  // at most kMaxExtensionNumbers
  std::vector<double> reals;           // at most kMaxExtensionNumbers
  std::vector<FrozenTensor> tensors;   // at most kMaxExtensionTensors, of any shape; may be empty
};

// A part of a rank's state or model on its way to another rank. Roles never see it.
struct StateChunk {
  // Which state: for a view its number, for a checkpoint minus the number of the cut; or which part
  // of a model: from kFirstModelTransfer on.
  std::int64_t transfer = 0;
  std::int64_t offset = 0;  // of these bytes
  std::int64_t total = 0;   // of the state, in bytes
  FrozenTensor data;        // [n] u8
};

// The rank that takes a state from another one has so much of it: the giving rank sends a further
// part for each one that has arrived. Roles never see it.
struct StateReceived {
  std::int64_t transfer = 0;  // of the StateChunks
  std::int64_t bytes = 0;     // from the beginning of the state on
};

using Payload =
    std::variant<Share, Leave, Chunk, Marker, Swap, ProgressUpdate, Activate, PackedChunk, Ask,
                 Grant, Commit, Receipt, Parameters, Extension, StateChunk, StateReceived>;

}  // namespace grapevine
