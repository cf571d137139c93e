// Envelope: one message between two ranks, as a transport carries it.
#pragma once
#include <cstdint>

#include "messages/protocol.hpp"
#include "messages/stamp.hpp"

namespace grapevine {

struct Envelope {
  Rank from = 0;
  Rank to = 0;
  Stamp stamp;
  Payload payload;
};

}  // namespace grapevine
