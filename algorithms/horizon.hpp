// Horizon: the length of training.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "messages/ids.hpp"

namespace grapevine {

// Every rank takes `steps` steps; where ranks do not wait for each other (bilateral) this is their
// mean, and the fast ones take more.
struct Horizon {
  Step steps = 0;              // gradients of each rank, >= 0
  double steps_per_epoch = 1;  // > 0
  bool by_samples = false;     // training ends after a number of samples; else of own steps
  // Where the present members took over: a step, and the training behind it in epochs.
  Step first_step = 0;
  double first_epoch = 0;
  double planned_epochs = 0;  // where members have changed: as planned at the start

  bool members_have_changed() const { return planned_epochs > 0; }
  // Of the whole run, as planned: where it ends by samples, also after a change of members.
  double run_epochs() const {
    return by_samples && members_have_changed() ? planned_epochs : epoch_of(steps);
  }
  double epoch_of(Step step) const { return epoch_at(static_cast<double>(step)); }
  // Of a mean of steps.
  double epoch_at(double step) const {
    const double first = static_cast<double>(first_step);
    return std::max(0.0, first_epoch + (step - first) / steps_per_epoch);
  }
  // After a number of steps of all `ranks` members together since first_step.
  double epoch_after(std::int64_t total, std::int32_t ranks) const {
    return first_epoch + static_cast<double>(total) / steps_per_epoch / ranks;
  }
  // The mean of the ranks' steps by this clock. REQUIRES: epoch >= first_epoch.
  Step step_at(double epoch) const {
    return first_step + static_cast<Step>(std::llround((epoch - first_epoch) * steps_per_epoch));
  }
  // Of `now` ranks in the place of `before`, from `step` on, with `epoch` epochs behind all of
  // them: the samples that are left are dealt among them.
  Horizon among(std::int32_t before, std::int32_t now, Step step, double epoch) const {
    Horizon horizon = *this;
    const double epochs = planned_epochs > 0 ? planned_epochs : epoch_of(steps);
    horizon.planned_epochs = epochs;
    horizon.steps_per_epoch = steps_per_epoch * before / now;
    horizon.first_step = step;
    horizon.first_epoch = epoch;
    // Rounded up, so that the last epoch is complete.
    const double left = std::max(0.0, epochs - epoch) * horizon.steps_per_epoch;
    if (by_samples) horizon.steps = step + static_cast<Step>(std::ceil(left - 1e-9));
    return horizon;
  }
  // Of the same members, who begin at `step` together, with `epoch` epochs behind all of them: as
  // much is left as was planned.
  Horizon from(Step step, double epoch) const {
    Horizon horizon = *this;
    const double planned = run_epochs();
    const double left = std::max(0.0, planned - epoch) * steps_per_epoch;
    horizon.first_step = step;
    horizon.first_epoch = epoch;
    horizon.planned_epochs = planned;
    horizon.steps = step + static_cast<Step>(std::ceil(left - 1e-9));
    return horizon;
  }
};

}  // namespace grapevine
