// RunEnd: how the main thread waits for the end of a run.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>

#include "actors/run/run_observer.hpp"

namespace grapevine {

// An observer that only keeps the result. Thread-safe.
class RunEnd : public RunObserver {
 public:
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string& message) override;
  void on_end(RunResult result) override;

  // Whether the run is to end before its last step. Polled on another thread.
  virtual bool wants_stop() const { return false; }

  // Also after its result has been given.
  bool has_ended() const;

  // The result once the run has ended, or nothing after `timeout`. Gives it once.
  std::optional<RunResult> wait_for(Duration timeout);

 private:
  mutable std::mutex mutex_;  // guards result_, over_
  std::condition_variable ended_;
  std::optional<RunResult> result_;
  bool over_ = false;
};

}  // namespace grapevine
