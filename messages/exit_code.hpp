// What a process says to its launcher by how it ends.
#pragma once
#include "messages/expected.hpp"

namespace grapevine {

enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,
  kExitBadInput = 2,
  kExitLost = 3,     // a machine, process or link was lost: a restart may help
  kExitStopped = 4,  // by request, with a checkpoint to resume from
};

// Of a process that ends with such an error.
inline ExitCode exit_code_of(Errc code) {
  switch (code) {
    case Errc::bad_input:
    case Errc::unavailable:
      return kExitBadInput;
    case Errc::peer_down:
      return kExitLost;
    case Errc::stopped:
      return kExitStopped;
    case Errc::io:
    case Errc::timeout:
    case Errc::protocol:
    case Errc::failed:
      break;
  }
  return kExitFailed;
}

}  // namespace grapevine
