// Why a link was lost, as text. It begins with the cause where that is not the network.
#pragma once
#include <string>

#include "messages/expected.hpp"

namespace grapevine {

// The process that reports the loss could not process a message, e.g. for lack of memory.
inline constexpr char kErrorHere[] = "an error in this process: ";
// The other process sent bytes that no process of this version sends.
inline constexpr char kMalformed[] = "a malformed message: ";

// Of an error of a link: of what the other process has written (protocol), or of this process (all
// others, as a lack of memory).
inline std::string loss_reason(const Error& error) {
  return (error.code == Errc::protocol ? kMalformed : kErrorHere) + error.message;
}

inline bool is_error_here(const std::string& reason) { return reason.rfind(kErrorHere, 0) == 0; }
inline bool is_malformed(const std::string& reason) { return reason.rfind(kMalformed, 0) == 0; }

}  // namespace grapevine
