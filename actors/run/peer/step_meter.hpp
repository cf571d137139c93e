// StepMeter: the times of a rank's steps and waits, and the staleness of what it applied.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "actors/run/step_times.hpp"
#include "messages/time.hpp"

namespace grapevine {

// `now`: of one clock. Not thread-safe.
class StepMeter {
 public:
  // Of one step.
  struct Measures {
    double seconds = 0;
    double waited_seconds = 0;  // for other ranks
    double staleness = 0;       // mean of what was applied; NaN: nothing was
  };

  // `seed`: of the sample of step times.
  explicit StepMeter(std::uint64_t seed = 0) : times_(seed) {}

  // The step in progress counts from `now`, with the waits until then.
  void begin_step(Timestamp now) { step_began_ = now; }
  void applied(std::int64_t staleness);
  // Waits may be nested: a level waits inside another one.
  void begin_wait(Timestamp now);
  // Since the last begin_wait(). REQUIRES: there was one.
  Duration end_wait(Timestamp now);
  // Ends the step in progress, and begins the next one.
  Measures end_step(Timestamp now);

  // The begin of the first of the waits that are open; nothing: none is.
  std::optional<Timestamp> waiting_since() const {
    return open_waits_ > 0 ? std::optional(waiting_since_) : std::nullopt;
  }
  // How long the steps so far took: see StepTimes.
  const std::vector<double>& step_seconds() const { return times_.sample(); }

 private:
  Timestamp step_began_{0};
  Timestamp wait_began_{0};  // of the newest wait
  Duration waited_{0};       // in this step
  std::int32_t open_waits_ = 0;
  Timestamp waiting_since_{0};
  double staleness_sum_ = 0;  // of this step, and
  std::int64_t staleness_count_ = 0;
  StepTimes times_;
};

}  // namespace grapevine
