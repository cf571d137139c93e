// LineWriter: writes lines on a thread of its own, for a loop that must not wait for a full pipe or
// a stopped terminal.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "actors/cluster/output/line_backlog.hpp"
#include "apps/console/command.hpp"
#include "apps/console/signal_pipe.hpp"

namespace grapevine {

// The text alone.
void write_plain_line(Console& console, const JobLine& line);

// add() and waiting_bytes() are thread-safe; the rest belongs to one thread.
class LineWriter {
 public:
  // To the console's out or err, by the line's flag.
  using Write = std::function<void(Console&, const JobLine&)>;
  // How many of the lines that were added are finished, written or left out, since the beginning.
  // Called on the writing thread, every kDoneBytes or so; it must not wait, nor use this object.
  using Done = std::function<void(std::int64_t lines)>;
  static constexpr std::size_t kDoneBytes = std::size_t{64} << 10;

  // `bytes`: of lines that wait. Beyond it the oldest are left out, and err gives their number.
  // REQUIRES: from the first add() to the end of drain() nothing else writes to the console, which
  // outlives both.
  LineWriter(Console& console, std::size_t bytes, Write write, Done on_done = nullptr);
  // Waits until all is written, except lines that drain() has given up.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Does not wait.
  void add(JobLine line);
  // Of lines that are not being written yet.
  std::size_t waiting_bytes() const;

  // Waits until all lines are written, without a limit. Once a stop was asked for, before or (then
  // `stop_requested` is true) meanwhile, the wait ends where the reader takes nothing for
  // `timeout`. Then false, and the console reports an abandoned thread and its stream.
  bool drain(SignalPipe& signals, bool& stop_requested,
             std::chrono::milliseconds timeout = std::chrono::seconds(5));

 private:
  struct Shared;  // with the thread, which may be abandoned

  Console& console_;
  const std::shared_ptr<Shared> shared_;
  std::thread thread_;
};

}  // namespace grapevine
