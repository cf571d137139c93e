#include "apps/train/run_tally.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <spdlog/spdlog.h>

namespace grapevine {
namespace {

constexpr double kSmoothing = 0.95;  // of the loss that the progress bar shows

}  // namespace

void RecentLosses::add(Rank rank, double loss) {
  std::deque<double>& losses = losses_[rank];
  losses.push_back(loss);
  if (losses.size() > kWindow) losses.pop_front();
}

double RecentLosses::mean() const {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [rank, losses] : losses_) {
    for (const double loss : losses) sum += loss;
    count += losses.size();
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

void RunTally::on_step(const StepReport& report) {
  begun_ = true;
  if (report.logged) losses_.add(report.rank, report.loss);
  goodput_.add(report.rank, report.samples, report.batch_time_s);
  ++progress_.step;
  // Ranks that go at their own pace may take more steps than were planned.
  progress_.steps = std::max(progress_.steps, progress_.step);
  progress_.samples += report.samples;
  progress_.loss = std::isfinite(progress_.loss)
                       ? kSmoothing * progress_.loss + (1 - kSmoothing) * report.loss
                       : report.loss;
  show_(progress_);
}

void RunTally::on_validation(Epoch epoch, const Evaluation& evaluation) {
  spdlog::info("epoch {}: validation loss {:.4f}, top-1 {:.4f}", epoch + 1, evaluation.loss,
               evaluation.top1);
}

void RunTally::on_checkpoint(const std::string& path) { spdlog::info("checkpoint {}", path); }

}  // namespace grapevine
