// shell_quoted: texts in commands of a POSIX shell.
#pragma once
#include <string>

namespace grapevine {

// `text` as one word.
inline std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace grapevine
