// The size of messages whose model stands for a larger one.
#pragma once
#include <cstdint>

#include "messages/envelope.hpp"

namespace grapevine {

// Bytes of the message on the wire, where each parameter in it stands for `scale` of them. What
// does not grow with the model (headers, counts of steps) has its own size. `scale` 1: wire_size().
std::uint64_t scaled_wire_size(const Envelope& envelope, double scale);

}  // namespace grapevine
