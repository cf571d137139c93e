// Shares that have arrived and wait to be folded, as checkpoint entries.
#pragma once
#include "algorithms/state_dict.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// REQUIRES: the payload is a Share.
StateDict store_share(const Envelope& envelope);
Expected<Envelope> load_share(const StateDict& state, Rank to);

}  // namespace grapevine
