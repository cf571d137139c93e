// The encoding of messages between processes, as CAF requires it. Messages are small: models and
// the states of checkpoints go over the transport. No inspect() throws, and no memory is allocated
// for bytes that have not arrived, but for lists of equal numbers or steps (PackedReader).
#pragma once
#include <caf/deserializer.hpp>
#include <caf/fwd.hpp>
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/serializer.hpp>

#include <cstddef>
#include <cstdint>

#include "actors/protocol/packed_lists.hpp"
#include "actors/record/ledger.hpp"
#include "algorithms/state_dict.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The most that a message between processes takes, in a run of 4,096 workers and as many processes:
// what it holds is bounded where it is made or written. A longer one has a line of the log;
// BaspGuard refuses more than 1 MiB.
inline constexpr std::size_t kMostControlBytes = std::size_t{64} << 10;

// The types of all messages between processes, which CAF decodes by their names. A message that is
// not among them fails only where it arrives from another process.
void add_message_types(caf::actor_system_config& config);

// Figures, with short lists as tensors: a longer one is refused.
caf::error inspect(caf::serializer& sink, StateDict& state);
caf::error inspect(caf::deserializer& source, StateDict& state);
caf::error inspect(caf::serializer& sink, Error& error);
caf::error inspect(caf::deserializer& source, Error& error);

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ledger& l) {
  PackedLists counts([&l](ListArchive& a) { return a(l.staleness) && a(l.contributed); });
  return f(caf::meta::type_name("ledger"), l.produced, l.committed, l.dropped, l.samples, l.sent,
           l.received, l.sent_before, l.bytes_sent, counts.bytes,
           caf::meta::load_callback([&counts] { return counts.restore(); }));
}

}  // namespace grapevine
