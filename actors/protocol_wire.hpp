// The encoding of messages between processes, as CAF requires it. Tensors and the states of
// checkpoints are raw bytes with the codec's headers. No function throws, and no memory is
// allocated for bytes that have not arrived. A tensor for which there is no memory is read as an
// empty one, a state with such a tensor as kUnreadable: actors/run/validate.hpp then names the
// sender.
#pragma once
#include <caf/deserializer.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/serializer.hpp>

#include <cstdint>

#include "actors/record/ledger.hpp"
#include "algorithms/state_dict.hpp"
#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

// CAF writes the length of a message in 32 bits; this leaves room for the fields beside tensors.
inline constexpr std::uint64_t kMostMessageBytes =
    (std::uint64_t{4} << 30) - (std::uint64_t{1} << 20);

// The only entry of a state that could not be read whole.
inline constexpr char kUnreadable[] = "unreadable";

caf::error inspect(caf::serializer& sink, FrozenTensor& tensor);
caf::error inspect(caf::deserializer& source, FrozenTensor& tensor);
caf::error inspect(caf::serializer& sink, StateDict& state);
caf::error inspect(caf::deserializer& source, StateDict& state);
caf::error inspect(caf::serializer& sink, Error& error);
caf::error inspect(caf::deserializer& source, Error& error);

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ledger& l) {
  return f(caf::meta::type_name("ledger"), l.produced, l.committed, l.dropped, l.samples, l.sent,
           l.received, l.sent_before, l.bytes_sent, l.staleness, l.contributed);
}

}  // namespace grapevine
