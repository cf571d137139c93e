// TerminalStyle: the abilities of the terminal behind a stream.
#pragma once
#include <functional>

namespace grapevine {

struct TerminalStyle {
  bool redraw = false;   // a line may be drawn over again
  bool color = false;    // ANSI colours
  bool unicode = false;  // characters beyond ASCII
  // Width at this moment (people resize windows); at least 1. Never empty.
  std::function<int()> columns = [] { return 80; };
};

// `lookup` reads the environment (nullptr: not set). `terminal`: the stream is one. TERM=dumb or
// unset: lines only; NO_COLOR (non-empty): no colours; LC_ALL, LC_CTYPE, LANG: unicode or not.
TerminalStyle terminal_style(bool terminal, const std::function<const char*(const char*)>& lookup);
// The same for a file descriptor, with this process's environment and the window's present width.
TerminalStyle detect_terminal(int descriptor);

}  // namespace grapevine
