// The result of a process for its launcher: the exit code, and the line after a stop by the
// launcher's signal.
#pragma once
#include "messages/expected.hpp"

namespace grapevine {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitLost = 3;     // a machine, process or link was lost: a restart may help
inline constexpr int kExitStopped = 4;  // by request, with a checkpoint to resume from

// The last line of stderr begins with it, unless the exit code is 0.
inline constexpr char kErrorStart[] = "error: ";
// The texts after it where a signal arrived before training; with kExitFailed. The second one is of
// the process with that number, which waited for the others.
inline constexpr char kStoppedBeforeTraining[] = "stopped by a signal before training began";
inline constexpr char kStoppedAtTheStart[] = "process {} was asked to stop before training began";

// In that line where another process still has the place of one that joins a run: that process
// answers, or does not and is not lost yet.
inline constexpr char kPlaceTaken[] = "is not lost: is it started twice?";
inline constexpr char kPlaceOfSilent[] = "does not answer, and does not count as lost yet";

// Of a process that ends with such an error.
inline int exit_code_of(Errc code) {
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
