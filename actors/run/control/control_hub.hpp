// ControlHub: through which other threads ask a run how it does, and change it.
#pragma once
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "actors/run/control/control_request.hpp"
#include "actors/run/control/live_settings.hpp"
#include "actors/run/control/run_status.hpp"
#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Made before the run, which attaches its actor Control to it and detaches it at its end. A
// question outside of that time is answered with an error. Thread-safe.
class ControlHub {
 public:
  // At most so long, until the run answers.
  static constexpr Duration kTimeout = std::chrono::milliseconds(1800);

  // Blocks. Errors: failed (the run has not begun), bad_input (it has ended), timeout (its
  // coordinator does not answer).
  Expected<RunStatus> status();
  // Blocks. Returns what happens now. Errors: the same; bad_input: the run refuses it, too, and
  // why.
  Expected<std::string> ask(const ControlRequest& request);

  // As SIGTERM does. The thread that waits for the run polls the flag.
  void request_stop() { stop_requested_ = true; }
  bool stop_requested() const { return stop_requested_; }

  // ---- for the run ----

  using StatusPromise = std::shared_ptr<std::promise<Expected<RunStatus>>>;
  using ChangePromise = std::shared_ptr<std::promise<Expected<std::string>>>;
  // The actor of a run. Its calls do not block.
  class Line {
   public:
    virtual ~Line() = default;
    virtual void ask_status(StatusPromise answer) = 0;
    virtual void ask_change(ControlRequest request, ChangePromise answer) = 0;
  };
  void attach(std::unique_ptr<Line> line);
  void detach();

 private:
  Error no_line() const;

  std::mutex mutex_;  // guards line_, ended_
  std::unique_ptr<Line> line_;
  bool ended_ = false;
  std::atomic<bool> stop_requested_{false};
};

}  // namespace grapevine
