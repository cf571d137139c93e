// StepMeter: the times of a rank's steps and waits, the staleness of what it applied, and how busy
// its GPU was.
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

  // Of so many first steps the work of the GPU does not count: libraries are loaded in them, and
  // pages locked.
  static constexpr std::int64_t kFirstSteps = 20;

  // The step in progress counts from `now`, with the waits until then.
  void begin_step(Timestamp now) { step_began_ = now; }
  void applied(std::int64_t staleness);
  // In the step in progress the GPU has worked for so long (Gradient::device_seconds); NaN:
  // unknown.
  void worked(double device_seconds) { worked_ += device_seconds; }
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
  // The share of time, in [0, 1], in which the GPU has worked since the first steps. Nothing: there
  // were no others, or it is not known of one of them.
  std::optional<double> gpu_busy() const;

 private:
  Timestamp step_began_{0};
  Timestamp wait_began_{0};  // of the newest wait
  Duration waited_{0};       // in this step
  std::int32_t open_waits_ = 0;
  Timestamp waiting_since_{0};
  double staleness_sum_ = 0;  // of this step, and
  std::int64_t staleness_count_ = 0;
  StepTimes times_;
  std::int64_t steps_ = 0;
  double worked_ = 0;                     // by the GPU in this step, and
  double all_worked_ = 0, all_time_ = 0;  // in those that count; s
};

}  // namespace grapevine
