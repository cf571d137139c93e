// Sending by roles: the stamp of a message, and the messages of a collective.
#pragma once
#include <utility>
#include <vector>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/env.hpp"

namespace grapevine {

inline Stamp stamp_of(Rank origin, Step step, Version version) {
  Stamp stamp;
  stamp.origin = origin;
  stamp.step = step;
  stamp.version = version;
  return stamp;
}

// In the order given.
inline void send_all(Env& env, const Stamp& stamp, std::vector<OutgoingMessage> messages) {
  for (OutgoingMessage& message : messages) env.send(message.to, stamp, std::move(message.payload));
}

}  // namespace grapevine
