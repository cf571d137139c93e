// RunDisplay: the output of `train` on its streams, written by a thread of its own: a stopped
// terminal or a full pipe holds up no other thread.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "apps/console/command.hpp"
#include "apps/console/text/progress_bar.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Text is written in order; where more than 1 MiB waits the oldest of it is left out, and how many
// pieces that were is said. Of progress only the newest waits. Thread-safe but for construction,
// drain() and destruction, which belong to one thread.
class RunDisplay {
 public:
  // Takes the log (spdlog's default one), too, until drain() has succeeded. REQUIRES: nothing else
  // writes to the console meanwhile; it outlives this.
  explicit RunDisplay(Console& console);
  // Waits for the current write, but not for output that drain() has given up.
  ~RunDisplay();
  RunDisplay(const RunDisplay&) = delete;
  RunDisplay& operator=(const RunDisplay&) = delete;

  // `text`: whole lines.
  void say_error(std::string text);   // to err
  void say_result(std::string text);  // to out

  // A progress bar under the text, from here to end_progress().
  void begin_progress(ProgressOptions options);
  void show(const RunProgress& progress);
  // `finished`: with a last line about the whole run.
  void end_progress(bool finished);

  // Until all is written; may be called again. A reader that takes nothing for `timeout`, or for
  // `short_timeout` once `stop_requested`, ends the waiting: then false, and the console reports
  // the stuck stream and the abandoned thread.
  bool drain(const std::function<bool()>& stop_requested,
             Duration timeout = std::chrono::seconds(60),
             Duration short_timeout = std::chrono::seconds(5));

 private:
  struct Shared;  // with the thread, which may be abandoned

  Console& console_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace grapevine
