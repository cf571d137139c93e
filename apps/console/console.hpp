// The output of verbs for people: figures in readable units, aligned tables, a progress bar.
// Everything here is pure but for the stream it is given: no clock, no terminal calls except
// detect_terminal(). Not thread-safe: one thread per object.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <iosfwd>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/time.hpp"

namespace grapevine {

// --- figures -----------------------------------------------------------------------------------

// Powers of 1000, three figures: "999 B", "1.2 kB", "12.3 MB", "123 GB".
std::string format_bytes(std::uint64_t bytes);
// The two leading units: "12µs", "250ms", "4.2s", "1m 03s", "2h 05m", "3d 04h"; "0s".
std::string format_duration(Duration duration);
// "1,234,567".
std::string format_count(std::int64_t count);
// Three figures with a decimal prefix: "0.42", "12.3", "1.2k", "34M". "-" where not finite.
std::string format_rate(double per_second);
// Fixed `decimals`; from a million on as many significant digits, "1.75e+21". "-" where not finite.
std::string format_number(double value, int decimals);

// --- text on a terminal ------------------------------------------------------------------------

// Columns that UTF-8 text takes on a terminal: combining marks 0, East Asian wide characters and
// emoji 2, anything else (also a byte that is no UTF-8) 1.
int display_width(std::string_view text);
// The longest prefix of whole characters that takes at most `columns`.
std::string truncate_to_width(std::string_view text, int columns);
// Lines of at most `columns`, as far as words are not longer; all but the first begin with
// `indent`. At least one.
std::vector<std::string> wrapped_lines(const std::string& text, int columns,
                                       const std::string& indent);

// The abilities of the terminal behind a stream.
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

// --- tables ------------------------------------------------------------------------------------

// Columns two spaces apart under a ruled header. A column whose cells are all figures ("12", "1.2
// MB", "1m 03s", "97.5%", "-" or empty) is set right, others left. Control characters in cells are
// shown as '?': a cell is one line and cannot steer the terminal.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // REQUIRES: as many cells as the header has.
  void add_row(std::vector<std::string> cells);
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;  // the header first
};
std::ostream& operator<<(std::ostream& out, const Table& table);

// --- progress ----------------------------------------------------------------------------------

struct RunProgress {
  std::int64_t step = 0;
  std::int64_t steps = 0;                                      // 0: not known
  std::int64_t samples = 0;                                    // so far, all ranks together
  double loss = std::numeric_limits<double>::quiet_NaN();      // NaN: not shown
  double epoch = 0;                                            // so far,
  double epochs = 0;                                           // of so many; 0: not shown
  double accuracy = std::numeric_limits<double>::quiet_NaN();  // of the newest validation
  std::string phase;  // where no steps are taken; empty: they are
  std::string label;  // in the place of that of the start; empty: that one
};

struct ProgressOptions {
  std::string label;               // e.g. the algorithm
  std::function<Timestamp()> now;  // REQUIRES: set, never runs backwards
  TerminalStyle style;
  RunProgress start;  // where a resumed run begins: rates count from here
  Duration redraw_interval = std::chrono::milliseconds(100);  // terminals
  Duration line_interval = std::chrono::seconds(5);           // pipes and files
};

// On a terminal one line that is redrawn:
//   sgp  42% ━━━━━━━━━━───────────── 420/1,000  epoch 1.3/3  12.3k samples/s  loss 0.4321
//   accuracy 0.912  left 1m 03s
// or, in a phase without steps,
//   sgp  100%  validating
// which gives up its parts one by one where the window is narrow. Elsewhere a plain line at most
// every `line_interval`, and the last one. Rate and time left use about the last ten seconds;
// the final line gives the averages of the whole run.
class ProgressBar {
 public:
  ProgressBar(std::ostream& out, ProgressOptions options);
  // Takes an unfinished line off the terminal, so that an error message starts in column one.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Cheap where nothing is due: call it at every step.
  void update(const RunProgress& progress);
  // Takes the line off the terminal, e.g. before a log line; the next update draws it again.
  void clear();
  // The last state, in full, on a line of its own. Later calls do nothing.
  void finish();

 private:
  struct Mark {
    Timestamp time;
    std::int64_t step;
    std::int64_t samples;
  };
  void remember(Timestamp now);
  void draw();
  std::string line(int columns) const;
  const std::string& label() const {
    return progress_.label.empty() ? options_.label : progress_.label;
  }
  std::string final_line() const;

  std::ostream& out_;
  const ProgressOptions options_;
  const Mark begin_;

  RunProgress progress_;
  std::deque<Mark> marks_;  // oldest first, the window that rates are taken from
  Timestamp last_drawn_;
  bool drawn_ = false;    // something was shown since the start
  bool visible_ = false;  // the terminal shows an unfinished line
  bool finished_ = false;
};

}  // namespace grapevine
