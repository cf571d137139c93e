// Shares that have arrived and wait to be folded, as checkpoint entries.
#pragma once
#include "algorithms/archive.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// REQUIRES: the payload of one that is saved is a Share. `to`: the receiver of one that is loaded.
void share_fields(Archive& a, Envelope& envelope, Rank to);

}  // namespace grapevine
