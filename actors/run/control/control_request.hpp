// Changes of a running job, as its operator asks for them.
#pragma once
#include <string>

#include "actors/run/control/live_settings.hpp"
#include "messages/ids.hpp"

namespace grapevine {

struct ControlRequest {
  enum class Kind {
    stop,        // as StopRequested
    checkpoint,  // at the next cut
    drain,       // `rank` leaves, the others continue
    set          // `settings` count from an agreed step on
  };
  Kind kind = Kind::checkpoint;
  Rank rank = 0;
  LiveSettings settings;
};

// To a ControlRequest.
struct ControlReply {
  bool refused = false;  // and the run is as it was
  std::string text;      // one line: what happens now, or why not
};

}  // namespace grapevine
