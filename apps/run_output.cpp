#include "apps/run_output.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include <spdlog/spdlog.h>

#include "messages/number_text.hpp"

namespace grapevine {
namespace {

constexpr char kHeader[] =
    "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,staleness,"
    "val_loss,val_top1,val_top5";

constexpr double kSmoothing = 0.95;  // of the loss that the progress bar shows

// "" where not measured.
std::string cell(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// With all digits: a resumed run reads it again.
std::string exact_cell(double value) { return std::isfinite(value) ? number_text(value) : ""; }

}  // namespace

Expected<std::shared_ptr<RunOutput>> RunOutput::create(const std::string& path,
                                                       const OutputBefore& before) {
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  std::shared_ptr<RunOutput> output(new RunOutput(std::move(*file), path));
  output->file_.stream() << kHeader << "\n";
  if (!before.first_steps.empty()) output->keep_rows(before);
  if (auto flushed = output->file_.flush(); !flushed) return flushed.error();
  return output;
}

// A resumed run goes on with the rows of the steps that it will not repeat, and of the validations.
void RunOutput::keep_rows(const OutputBefore& before) {
  newest_step_ = std::max<Step>(0, before.first_steps.front() - 1);
  std::ifstream old(before.rows);
  std::string line;
  if (!std::getline(old, line) || line != kHeader) return;
  while (std::getline(old, line)) {
    long rank = -1;
    double epoch = 0;
    long long step = -1;
    if (std::sscanf(line.c_str(), "%ld,%lf,%lld", &rank, &epoch, &step) < 2) continue;
    if (rank < 0 || rank >= static_cast<long>(before.first_steps.size())) continue;
    const bool of_step = line.size() > 3 && line.compare(line.size() - 3, 3, ",,,") == 0;
    const bool again = of_step ? step >= before.first_steps[static_cast<std::size_t>(rank)]
                               : epoch >= static_cast<double>(before.epochs);
    if (again) continue;
    file_.stream() << line << "\n";
    double loss = 0;
    if (std::sscanf(line.c_str(), "%*d,%*f,%*d,%*f,%*f,%*f,%*f,%lf", &loss) == 1)
      add_loss(static_cast<Rank>(rank), loss);
  }
}

void RunOutput::add_loss(Rank rank, double loss) {
  std::deque<double>& losses = losses_[rank];
  losses.push_back(loss);
  if (losses.size() > kLossWindow) losses.pop_front();
}

void RunOutput::show_progress(ProgressBar* bar, std::int64_t total_steps,
                              std::int64_t begun_steps) {
  bar_ = bar;
  progress_.steps = total_steps;
  progress_.step = begun_steps;
}

void RunOutput::add_follower(std::unique_ptr<RunFollower> follower) {
  followers_.push_back(std::move(follower));
}

void RunOutput::on_step(const StepReport& report) {
  if (before_first_step_) std::exchange(before_first_step_, nullptr)();
  begun_ = true;
  if (report.logged) {
    file_.stream() << report.rank << ',' << cell(report.epoch) << ',' << report.step << ','
                   << cell(report.time_s) << ',' << cell(report.batch_time_s) << ','
                   << cell(report.exchange_time_s) << ',' << cell(report.data_time_s) << ','
                   << exact_cell(report.loss) << ',' << cell(report.top1) << ','
                   << cell(report.top5) << ',' << cell(report.lr) << ',' << cell(report.staleness)
                   << ",,,\n";
    add_loss(report.rank, report.loss);
  }
  if (report.rank == 0) epoch_ends_[static_cast<Epoch>(report.epoch)] = newest_step_ = report.step;
  ++progress_.step;
  progress_.samples += report.samples;
  progress_.loss = std::isfinite(progress_.loss)
                       ? kSmoothing * progress_.loss + (1 - kSmoothing) * report.loss
                       : report.loss;
  if (bar_ != nullptr) bar_->update(progress_);
  for (const auto& follower : followers_) follower->on_step(report);
}

void RunOutput::on_validation(Epoch epoch, const Evaluation& evaluation) {
  // Where ranks go at their own pace, rank 0 may not have come to the end of the epoch.
  const auto end = epoch_ends_.find(epoch);
  const Step step = end == epoch_ends_.end() ? newest_step_ : end->second;
  file_.stream() << "0," << epoch << ',' << step << ",,,,,,,,,," << cell(evaluation.loss) << ','
                 << cell(evaluation.top1) << ',' << cell(evaluation.top5) << "\n";
  spdlog::info("epoch {}: validation loss {:.4f}, top-1 {:.4f}", epoch + 1, evaluation.loss,
               evaluation.top1);
  renew();  // the checkpoint of this epoch was there before it
  for (const auto& follower : followers_) follower->on_validation(epoch, step, evaluation);
}

void RunOutput::on_checkpoint(const std::string& path) {
  spdlog::info("checkpoint {}", path);
  renew();
  for (const auto& follower : followers_) follower->on_checkpoint();
}

// Writes metrics.csv, whole, as far as it is known: a process that is killed leaves the rows that
// belong to its newest checkpoint.
void RunOutput::renew() {
  if (auto flushed = file_.flush(); !flushed)
    return on_warning(flushed.error().message + ": the rows since the last checkpoint are lost");
  std::ifstream written(file_.temporary_path(), std::ios::binary);
  const std::string rows{std::istreambuf_iterator<char>(written), {}};
  if (auto renewed = write_file_atomically(path_, rows); !renewed)
    on_warning(renewed.error().message);
}

void RunOutput::on_warning(const std::string& message) {
  if (bar_ != nullptr) bar_->clear();
  spdlog::warn("{}", message);
  for (const auto& follower : followers_) follower->on_warning();
}

void RunOutput::on_end(RunResult result) {
  for (const auto& follower : followers_) follower->on_end();
  end_.on_end(std::move(result));
}

double RunOutput::final_loss() const {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [rank, losses] : losses_) {
    for (const double loss : losses) sum += loss;
    count += losses.size();
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace grapevine
