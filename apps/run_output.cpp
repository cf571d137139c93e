#include "apps/run_output.hpp"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include <spdlog/spdlog.h>

namespace grapevine {
namespace {

constexpr char kHeader[] =
    "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,staleness,"
    "val_loss,val_top1,val_top5";

// "" where not measured.
std::string cell(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

}  // namespace

Expected<std::shared_ptr<RunOutput>> RunOutput::create(const std::string& path,
                                                       const std::vector<Step>& first_steps) {
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  std::shared_ptr<RunOutput> output(new RunOutput(std::move(*file)));
  output->file_.stream() << kHeader << "\n";
  output->keep_rows(path, first_steps);
  return output;
}

// A resumed run goes on with the rows of the steps that it will not repeat.
void RunOutput::keep_rows(const std::string& path, const std::vector<Step>& first_steps) {
  std::ifstream old(path);
  std::string line;
  if (first_steps.empty() || !std::getline(old, line) || line != kHeader) return;
  while (std::getline(old, line)) {
    long rank = -1;
    double epoch = 0;
    long long step = -1;
    if (std::sscanf(line.c_str(), "%ld,%lf,%lld", &rank, &epoch, &step) != 3) continue;
    if (rank < 0 || rank >= static_cast<long>(first_steps.size())) continue;
    if (step < first_steps[static_cast<std::size_t>(rank)]) file_.stream() << line << "\n";
  }
}

void RunOutput::show_progress(ProgressBar* bar, std::int64_t total_steps,
                              std::int64_t begun_steps) {
  bar_ = bar;
  progress_.steps = total_steps;
  progress_.step = begun_steps;
}

void RunOutput::on_step(const StepReport& report) {
  file_.stream() << report.rank << ',' << cell(report.epoch) << ',' << report.step << ','
                 << cell(report.time_s) << ',' << cell(report.batch_time_s) << ','
                 << cell(report.exchange_time_s) << ',' << cell(report.data_time_s) << ','
                 << cell(report.loss) << ',' << cell(report.top1) << ',' << cell(report.top5) << ','
                 << cell(report.lr) << ',' << cell(report.staleness) << ",,,\n";
  std::deque<double>& losses = losses_[report.rank];
  losses.push_back(report.loss);
  if (losses.size() > kLossWindow) losses.pop_front();
  samples_ += report.samples;
  progress_.step += report.steps;
  progress_.samples = samples_;
  progress_.loss = progress_.samples == report.samples ? report.loss
                                                       : 0.95 * progress_.loss + 0.05 * report.loss;
  if (report.rank == 0) epoch_ends_[static_cast<Epoch>(report.epoch)] = report.step;
  if (bar_ != nullptr) bar_->update(progress_);
}

void RunOutput::on_validation(Epoch epoch, const Evaluation& evaluation) {
  const auto step = epoch_ends_.find(epoch);
  file_.stream() << "0," << epoch << ','
                 << (step == epoch_ends_.end() ? std::string() : std::to_string(step->second))
                 << ",,,,,,,,,," << cell(evaluation.loss) << ',' << cell(evaluation.top1) << ','
                 << cell(evaluation.top5) << "\n";
  spdlog::info("epoch {}: validation loss {:.4f}, top-1 {:.4f}", epoch + 1, evaluation.loss,
               evaluation.top1);
}

void RunOutput::on_checkpoint(const std::string& path) { spdlog::info("checkpoint {}", path); }

void RunOutput::on_warning(const std::string& message) {
  if (bar_ != nullptr) bar_->clear();
  spdlog::warn("{}", message);
}

void RunOutput::on_end(RunResult result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  result_ = std::move(result);
  ended_.notify_all();
}

std::optional<RunResult> RunOutput::wait_for(Duration patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait_for(lock, patience, [this] { return result_.has_value(); });
  return std::exchange(result_, std::nullopt);
}

double RunOutput::final_loss() const {
  double sum = 0;
  std::size_t count = 0;
  for (const auto& [rank, losses] : losses_) {
    for (const double loss : losses) sum += loss;
    count += losses.size();
  }
  return count > 0 ? sum / static_cast<double>(count)
                   : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace grapevine
