// Why a link was lost, as text. It begins with the cause where that is not the network.
#pragma once
#include <chrono>
#include <string>

#include "messages/expected.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

// The process that reports the loss could not process a message, e.g. for lack of memory.
inline constexpr char kErrorHere[] = "an error in this process: ";
// The other process sent bytes that no process of this version sends.
inline constexpr char kMalformed[] = "a malformed message: ";

// The reason of a loss by an error of the link. Errors with the code protocol are about bytes of
// the other process, all others about this process, as a lack of memory.
inline std::string loss_reason(const Error& error) {
  return (error.code == Errc::protocol ? kMalformed : kErrorHere) + error.message;
}

// For how long nothing came, as the limit of it: "30 s", "2.5 s".
inline std::string silence_text(std::chrono::nanoseconds limit) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(limit).count();
  return number_text(static_cast<double>(ms) / 1000) + " s";
}

inline bool is_error_here(const std::string& reason) { return reason.rfind(kErrorHere, 0) == 0; }
inline bool is_malformed(const std::string& reason) { return reason.rfind(kMalformed, 0) == 0; }

}  // namespace grapevine
