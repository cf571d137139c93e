#include "apps/train/run_tally.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "actors/record/checkpoints/checkpoint_keeper.hpp"
#include "apps/console/text/figures.hpp"

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
  Step& newest = steps_[report.rank];
  sum_of_steps_ += report.step + 1 - std::exchange(newest, report.step + 1);
  // Of the ranks that train: places may be vacant, and ranks lost. They may take more steps than
  // were planned.
  const Step mean = sum_of_steps_ / static_cast<Step>(steps_.size());
  progress_.step = std::max(progress_.step, mean * workers_);
  progress_.epoch = std::max(progress_.epoch, report.epochs_done);
  if (by_epochs_ && members_changed_ && progress_.epoch > 0)
    progress_.steps = std::llround(static_cast<double>(progress_.step) *
                                   std::max(1.0, progress_.epochs / progress_.epoch));
  progress_.steps = std::max(progress_.steps, progress_.step);
  progress_.samples += report.samples;
  progress_.loss = std::isfinite(progress_.loss)
                       ? kSmoothing * progress_.loss + (1 - kSmoothing) * report.loss
                       : report.loss;
  const bool last = progress_.steps > 0 && progress_.step >= progress_.steps;
  progress_.phase = last ? "validating and writing" : "";
  show();
}

// Its losses are those of a model that is no part of the last one.
void RunTally::on_rank_lost(Rank rank) {
  members_changed_ = true;
  losses_.remove(rank);
  const auto lost = steps_.find(rank);
  if (lost == steps_.end()) return;
  sum_of_steps_ -= lost->second;
  steps_.erase(lost);
}

// The steps of each worker: that is the number which --steps gives.
void RunTally::show() const {
  RunProgress shown = progress_;
  shown.step /= workers_;
  shown.steps /= workers_;
  show_(shown);
}

void RunTally::begin_phase(const std::string& phase) {
  progress_.phase = phase;
  if (!phase.empty()) show();
}

void RunTally::on_validation(Epoch epoch, const Evaluation& evaluation) {
  progress_.accuracy = evaluation.top1;
  show();  // the last line of a run is of its newest accuracy
  const std::string accuracy =
      std::isfinite(evaluation.top1) ? fmt::format("test accuracy {:.4f}, ", evaluation.top1) : "";
  if (say_)
    say_(fmt::format("epoch {}: {}test loss {}\n", epoch + 1, accuracy,
                     std::isfinite(evaluation.loss) ? format_number(evaluation.loss, 4)
                     : std::isnan(evaluation.loss)  ? "nan"
                                                    : "inf"));
  judge(evaluation);
  if (most_without_better_ > 0 && without_better_ >= most_without_better_) wants_stop_ = true;
}

void RunTally::begin_after(const std::map<Epoch, Evaluation>& earlier) {
  for (const auto& [epoch, evaluation] : earlier) judge(evaluation);
}

void RunTally::judge(const Evaluation& evaluation) {
  if (best_ && !better(evaluation, *best_)) {
    ++without_better_;
    return;
  }
  best_ = evaluation;
  without_better_ = 0;
}

void RunTally::on_checkpoint(const std::string& path) { spdlog::info("checkpoint {}", path); }

}  // namespace grapevine
