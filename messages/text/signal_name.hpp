// Names of signals in messages to users.
#pragma once
#include <cstring>
#include <string>

namespace grapevine {

// E.g. "9 (SIGKILL)"; the number alone where it has no name.
inline std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return std::to_string(number) + (name != nullptr ? " (SIG" + std::string(name) + ")" : "");
}

}  // namespace grapevine
