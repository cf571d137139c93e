// Why a link was lost, as text. A cause that is not the network stands at its beginning.
#pragma once
#include <string>

namespace grapevine {

// The process that reports the loss could not deal with what came, e.g. for lack of memory.
inline constexpr char kErrorHere[] = "an error in this process: ";
// The other process sent what none of this version sends.
inline constexpr char kMalformed[] = "a malformed message: ";

inline bool is_error_here(const std::string& reason) { return reason.rfind(kErrorHere, 0) == 0; }
inline bool is_malformed(const std::string& reason) { return reason.rfind(kMalformed, 0) == 0; }

}  // namespace grapevine
