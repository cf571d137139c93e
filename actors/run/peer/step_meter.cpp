#include "actors/run/peer/step_meter.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace grapevine {

void StepMeter::applied(std::int64_t staleness) {
  staleness_sum_ += static_cast<double>(staleness);
  ++staleness_count_;
}

void StepMeter::begin_wait(Timestamp now) {
  wait_began_ = now;
  if (open_waits_++ == 0) waiting_since_ = now;
}

Duration StepMeter::end_wait(Timestamp now) {
  open_waits_ = std::max(0, open_waits_ - 1);
  const Duration wait = now - wait_began_;
  waited_ += wait;
  return wait;
}

StepMeter::Measures StepMeter::end_step(Timestamp now) {
  Measures measures;
  measures.seconds = to_seconds(now - step_began_);
  measures.waited_seconds = to_seconds(waited_);
  measures.staleness = staleness_count_ > 0 ? staleness_sum_ / static_cast<double>(staleness_count_)
                                            : std::numeric_limits<double>::quiet_NaN();
  times_.add(measures.seconds);
  if (steps_++ >= kFirstSteps) {
    all_worked_ += worked_;
    all_time_ += measures.seconds;
  }
  worked_ = 0;
  step_began_ = now;
  waited_ = Duration::zero();
  staleness_sum_ = 0;
  staleness_count_ = 0;
  return measures;
}

// Work is read a moment after it has ended, which may be in the next step.
std::optional<double> StepMeter::gpu_busy() const {
  if (!(all_time_ > 0) || std::isnan(all_worked_)) return std::nullopt;
  return std::min(1.0, all_worked_ / all_time_);
}

}  // namespace grapevine
