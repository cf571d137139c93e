// ExchangeSteps: the steps of a rank that an exchange follows. A pure function of the step, so that
// all ranks number their exchanges alike.
#pragma once
#include <cstdint>
#include <vector>

#include "algorithms/horizon.hpp"
#include "algorithms/schedules.hpp"

namespace grapevine {

// H, the local steps from one exchange to the next, where the next one begins.
struct LocalSteps {
  CountSchedule by_epoch = CountSchedule::constant(1);
  // Quadratic synchronization rule (Gu et al. 2024): H = max(by_epoch, floor((alpha / lr)^2)) once
  // the learning rate has warmed up; 0: none. All steps that are left where lr is 0.
  double alpha = 0;

  // Whether H may change during a run.
  bool changes() const { return alpha > 0 || by_epoch.values().size() > 1; }
};

class ExchangeSteps {
 public:
  ExchangeSteps(const LocalSteps& local_steps, const Horizon& horizon, const LrSchedule& lr);

  // Whether an exchange follows `steps` steps by H alone, 0 included; beyond the horizon the last H
  // counts.
  bool on_schedule(Step steps) const;
  // The same, and after the last step of the run and each one beyond it.
  bool due(Step steps) const { return steps >= steps_ || on_schedule(steps); }
  // Of the whole run.
  std::int64_t count() const { return index_of(steps_); }
  // Which exchange, from 0, comes next after `steps` steps; count() at the end.
  std::int64_t index_of(Step steps) const;
  // The steps that it follows.
  Step end_of(std::int64_t index) const;
  // The steps after which its own begin.
  Step begin_of(std::int64_t index) const { return index == 0 ? 0 : end_of(index - 1); }
  // H; where it changes, the mean.
  double mean_local_steps() const {
    return ends_.empty() ? static_cast<double>(longest_)
                         : static_cast<double>(steps_) / static_cast<double>(ends_.size());
  }
  // The largest H of the run.
  std::int64_t longest() const { return longest_; }

 private:
  Step steps_;                // of the run
  std::int64_t longest_ = 1;  // the only H where ends_ is empty
  std::vector<Step> ends_;    // ascending; where H changes
  std::int64_t last_ = 1;     // where H changes: the last H,
  Step beyond_ = 0;           // and its end, which may lie beyond the run
};

}  // namespace grapevine
