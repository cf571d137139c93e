// What `launch` and a pool of nodes do alike with the processes of a job: the text of their ends,
// their last errors, and the time that they have to end.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "messages/time.hpp"

namespace grapevine {

// Where this variable is set, process 0 of `train` writes the text of a RunBegin, a line, to stderr
// once all processes that begin the run have joined. Before that line the others wait for each
// process; after it they may continue without a lost one.
inline constexpr char kReportBeginVariable[] = "GRAPEVINE_REPORT_BEGIN";

struct RunBegin {
  std::int32_t processes = 1;  // that begin it
  std::int32_t places = 1;     // for processes: more may join it later
  std::int32_t least = 1;      // processes without which it does not continue
};
std::string text_of(const RunBegin& begin);
// Nothing: the line is no such text.
std::optional<RunBegin> parse_run_begin(const std::string& line);

struct ProcessEnd {
  int exit_code = -1;  // -1 where a signal ended it
  int signal = 0;      // 0 where it exited
};

// "<who> was killed by signal 9 (SIGKILL)" or "<who> exited with code 3".
std::string end_text(const std::string& who, const ProcessEnd& end);

// The last error line of a process, which is held back because other processes may report the same
// error: equal lines are written once.
class HeldError {
 public:
  using Write = std::function<void(std::string line)>;

  // A line of its stderr. The line that was held so far is written. An error is held now, any
  // other line is written.
  void add(std::string line, const Write& write);
  void release(const Write& write);
  void drop() { line_.clear(); }

  const std::string& line() const { return line_; }  // empty where none is held
  std::string text() const;                          // without "error: "

 private:
  std::string line_;
};

// From SIGKILL until a process is given up, which waits for a dead disk or device.
inline constexpr std::chrono::seconds kKillTimeout{15};

// The time that a process has to end: a grace period once it was asked to, then SIGKILL, and a last
// timeout. Not thread-safe.
class GracePeriod {
 public:
  using Time = Timestamp;  // of the caller's clock
  enum class Due { nothing, kill, give_up };

  explicit GracePeriod(Duration kill_timeout = kKillTimeout) : kill_timeout_(kill_timeout) {}

  // The process was asked to end. The earliest end of a grace counts, and none after SIGKILL.
  // Returns whether this one ends earlier than those before.
  bool begin(Time now, Duration grace);
  // The process was sent SIGKILL.
  void kill(Time now);

  bool killed() const { return give_up_at_.has_value(); }
  // When SIGKILL is due; nothing before begin() and after kill().
  std::optional<Time> kill_at() const { return kill_at_; }
  Due due(Time now) const;

 private:
  Duration kill_timeout_;
  std::optional<Time> kill_at_;
  std::optional<Time> give_up_at_;
};

}  // namespace grapevine
