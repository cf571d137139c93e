// How the messages that cross processes are written: what CAF asks for, and no more. Tensors and
// checkpoints go as raw bytes; a message is limited to 4 GiB by CAF.
#pragma once
#include <caf/deserializer.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/serializer.hpp>

#include "actors/ledger.hpp"
#include "algorithms/state_dict.hpp"
#include "messages/expected.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

caf::error inspect(caf::serializer& sink, FrozenTensor& tensor);
caf::error inspect(caf::deserializer& source, FrozenTensor& tensor);
caf::error inspect(caf::serializer& sink, StateDict& state);
caf::error inspect(caf::deserializer& source, StateDict& state);
caf::error inspect(caf::serializer& sink, Error& error);
caf::error inspect(caf::deserializer& source, Error& error);

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ledger& l) {
  return f(caf::meta::type_name("ledger"), l.produced, l.committed, l.dropped, l.samples, l.sent,
           l.received, l.sent_before, l.bytes_sent, l.staleness, l.joined);
}

}  // namespace grapevine
