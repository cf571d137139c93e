// Faults of links and pauses of ranks in a simulated run, at known times.
#pragma once
#include <vector>

#include "messages/ids.hpp"
#include "messages/time.hpp"

namespace grapevine {

// The link of two ranks, in both directions. Partition: messages that are sent in this time arrive
// once it is over, as with a transport that sends again. Slow: messages take `factor` times as
// long.
struct LinkFault {
  enum class Kind { partition, slow };
  Kind kind = Kind::partition;
  Rank a = 0, b = 0;
  Timestamp at{0};
  Duration length{0};
  double factor = 1;  // of slow

  bool covers(Timestamp time) const { return time >= at && time < at + length; }
};

// The process of a rank is stopped: it sends and receives nothing, and its worker computes nothing.
struct RankPause {
  Rank rank = 0;
  Timestamp at{0};
  Duration length{0};

  Timestamp end() const { return at + length; }
  bool covers(Timestamp time) const { return time >= at && time < end(); }
};

}  // namespace grapevine
