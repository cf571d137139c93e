// ProgressBar: how far a run is, on a stream. No clock but the one that it is given.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <iosfwd>
#include <limits>
#include <string>

#include "apps/console/text/terminal.hpp"
#include "messages/time.hpp"

namespace grapevine {

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
// the final line gives the averages of the whole run. Not thread-safe.
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
