#include "actors/record/goodput.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace grapevine {

void Goodput::add(Rank rank, std::int64_t samples, double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return;
  Worker& worker = workers_[rank];
  worker.current.samples += samples;
  worker.current.seconds += seconds;
  worker.seconds += seconds;
  samples_ += samples;
  seconds_ = std::max(seconds_, worker.seconds);
  if (++worker.steps < kWindow) return;
  best_rate_ = std::max(best_rate_, worker.current.rate());
  worker.current = {};
  worker.steps = 0;
}

double Goodput::best_rate() const {
  if (best_rate_ > 0) return best_rate_;
  double best = 0;
  for (const auto& [rank, worker] : workers_) best = std::max(best, worker.current.rate());
  return best;
}

double Goodput::ratio(const Ledger& ledger, std::int64_t workers) const {
  const double possible = best_rate() * static_cast<double>(workers) * seconds_;
  if (!(possible > 0) || ledger.produced <= 0) return std::numeric_limits<double>::quiet_NaN();
  const double applied =
      static_cast<double>(ledger.committed) / static_cast<double>(ledger.produced);
  // The steps of an incomplete window may be faster than the best one.
  return std::min(1.0, static_cast<double>(samples_) * std::min(1.0, applied) / possible);
}

}  // namespace grapevine
