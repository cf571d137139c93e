// Stamp: the origin of a data message, and the age of its content.
#pragma once
#include <cstdint>

#include "messages/ids.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Staleness of an applied update = the receiver's step (or version) at apply - `step` (`version`).
struct Stamp {
  Rank origin = 0;             // the rank whose gradient is the newest inside
  Step step = 0;               // the step at which that gradient was computed
  Version version = 0;         // the model version that it was computed from
  Timestamp sent{0};           // sender's clock
  std::uint16_t hop = 0;       // ranks that have passed the message on; no role sets it yet
  std::uint64_t sequence = 0;  // per sender, from 1: names the message in traces
};

}  // namespace grapevine
