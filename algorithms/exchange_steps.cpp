#include "algorithms/exchange_steps.hpp"

#include <algorithm>
#include <cmath>

namespace grapevine {
namespace {

// Rounding must not take one from a whole number: (0.6 / 0.2)^2 is 9. `left`: steps of the run.
std::int64_t quadratic_steps(double alpha, double lr, std::int64_t left) {
  constexpr double kTolerance = 1e-9, kMost = 1e12;
  if (lr <= 0) return left;
  const double steps = alpha / lr * (alpha / lr) * (1 + kTolerance);
  return static_cast<std::int64_t>(std::floor(std::min(steps, kMost)));
}

}  // namespace

ExchangeSteps::ExchangeSteps(const LocalSteps& local_steps, const Horizon& horizon,
                             const LrSchedule& lr)
    : steps_(horizon.steps) {
  if (!local_steps.changes()) {
    longest_ = local_steps.by_epoch.at(0);
    return;
  }
  for (Step step = 0; step < steps_; step = ends_.back()) {
    const double epoch = horizon.epoch_of(step);
    const std::int64_t base = local_steps.by_epoch.at(epoch), left = steps_ - step;
    std::int64_t h = base;
    if (local_steps.alpha > 0 && !lr.warms_up_at(epoch))
      h = std::max(h, quadratic_steps(local_steps.alpha, lr.at(epoch), left));
    longest_ = std::max(longest_, std::min(h, std::max(base, left)));
    last_ = h;
    beyond_ = step + h;
    ends_.push_back(std::min(beyond_, steps_));
  }
}

bool ExchangeSteps::on_schedule(Step steps) const {
  if (ends_.empty() || steps == 0) return steps % longest_ == 0;
  if (steps < steps_) return std::binary_search(ends_.begin(), ends_.end(), steps);
  return steps >= beyond_ && (steps - beyond_) % last_ == 0;
}

std::int64_t ExchangeSteps::index_of(Step steps) const {
  if (!ends_.empty()) return std::upper_bound(ends_.begin(), ends_.end(), steps) - ends_.begin();
  return (steps >= steps_ ? steps_ + longest_ - 1 : steps) / longest_;
}

Step ExchangeSteps::end_of(std::int64_t index) const {
  if (ends_.empty()) return std::min((index + 1) * longest_, steps_);
  const auto last = static_cast<std::int64_t>(ends_.size()) - 1;
  return ends_[static_cast<std::size_t>(std::min(index, last))];
}

}  // namespace grapevine
