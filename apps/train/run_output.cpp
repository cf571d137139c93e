#include "apps/train/run_output.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <utility>

#include <spdlog/spdlog.h>

#include "apps/console/next_row.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr char kHeader[] =
    "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,staleness,"
    "val_loss,val_top1,val_top5";
constexpr auto kCommas = 14;

// "" where not measured.
std::string cell(double value) {
  if (!std::isfinite(value)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// With all digits: a resumed run reads it again.
std::string exact_cell(double value) { return std::isfinite(value) ? number_text(value) : ""; }

std::string row_of(const StepReport& report) {
  std::string row =
      std::to_string(report.rank) + ',' + cell(report.epoch) + ',' + std::to_string(report.step);
  for (const double figure :
       {report.time_s, report.batch_time_s, report.exchange_time_s, report.data_time_s})
    row += ',' + cell(figure);
  row += ',' + exact_cell(report.loss);
  for (const double figure : {report.top1, report.top5, report.lr, report.staleness})
    row += ',' + cell(figure);
  return row + ",,,\n";
}

// Steps of the rank that this run does not take again. One that it has not keeps those until the
// checkpoint, or all where the checkpoint had not got it either.
Step steps_kept(const OutputBefore& before, std::size_t rank) {
  if (rank < before.first_steps.size()) return before.first_steps[rank];
  if (rank < before.saved_steps.size()) return before.saved_steps[rank];
  return std::numeric_limits<Step>::max();
}

// Rows with other columns than today's are kept beside `path`.
void set_aside(const std::string& rows, const std::string& path) {
  namespace fs = std::filesystem;
  std::string kept = path + ".old";
  std::error_code failed;
  for (int number = 2; fs::exists(kept, failed); ++number)
    kept = path + ".old" + std::to_string(number);
  fs::copy_file(rows, kept, failed);
  if (failed)
    spdlog::warn("{} has other columns than this version writes, and cannot be kept as {}: {}",
                 rows, kept, failed.message());
  else
    spdlog::warn("{} has other columns than this version writes: its rows stay in {}", rows, kept);
}

}  // namespace

Expected<std::shared_ptr<RunOutput>> RunOutput::create(const std::string& path,
                                                       const OutputBefore& before) {
  std::error_code ignored;
  const bool anew = !std::filesystem::exists(path, ignored);
  auto file = AtomicFile::create(path);
  if (!file) return file.error();
  std::shared_ptr<RunOutput> output(new RunOutput(std::move(*file), path));
  output->begin_->stream() << kHeader << "\n";
  if (!before.first_steps.empty()) output->keep_rows(before);
  if (auto flushed = output->begin_->flush(); !flushed) return flushed.error();
  if (anew)
    if (auto opened = output->open_rows(); !opened) return opened.error();
  return output;
}

// A resumed run keeps the rows of the steps that it will not repeat, and of the validations.
void RunOutput::keep_rows(const OutputBefore& before) {
  newest_step_ = std::max<Step>(0, before.first_steps.front() - 1);
  std::ifstream old(before.rows);
  std::string line;
  if (!next_row(old, line)) return;
  if (line != kHeader) return set_aside(before.rows, path_);
  while (next_row(old, line)) {
    // The last row of a process that was killed may be cut off.
    if (old.eof() || std::count(line.begin(), line.end(), ',') != kCommas) continue;
    long rank = -1;
    double epoch = 0;
    long long step = -1;
    if (std::sscanf(line.c_str(), "%ld,%lf,%lld", &rank, &epoch, &step) < 3) continue;
    if (rank < 0) continue;
    const bool of_step = line.compare(line.size() - 3, 3, ",,,") == 0;
    const bool again = of_step ? step >= steps_kept(before, static_cast<std::size_t>(rank))
                               : epoch >= static_cast<double>(before.epochs);
    if (again) continue;
    begin_->stream() << line << "\n";
    if (of_step) reported_steps_ = std::max<Step>(reported_steps_, step + 1);
    double loss = 0;
    if (rank < static_cast<long>(before.first_steps.size()) &&
        std::sscanf(line.c_str(), "%*d,%*f,%*d,%*f,%*f,%*f,%*f,%lf", &loss) == 1)
      kept_losses_.add(static_cast<Rank>(rank), loss);
  }
}

// metrics.csv gets its name, once.
Expected<void> RunOutput::open_rows() {
  if (rows_) return {};
  if (begin_) {
    const auto named = begin_->commit();
    if (!named && !begin_->spent()) return named;
    begin_.reset();
    if (!named) warn(named.error().message);  // the name may not survive a power failure
  }
  auto rows = RowFile::open(path_);
  if (!rows) return rows.error();
  rows_.emplace(*std::move(rows));
  return {};
}

void RunOutput::add_follower(std::unique_ptr<RunFollower> follower) {
  followers_.push_back(std::move(follower));
}

void RunOutput::add_row(const std::string& row) {
  if (!rows_) check(open_rows());
  if (rows_)
    rows_->add(row);
  else
    ++lost_;
}

void RunOutput::on_step(const StepReport& report) {
  if (before_first_step_) std::exchange(before_first_step_, nullptr)();
  if (!rows_) check(open_rows());
  if (report.logged) add_row(row_of(report));
  double& time = epoch_times_[static_cast<Epoch>(report.epoch)];
  time = std::max(time, report.time_s);
  reported_steps_ = std::max(reported_steps_, report.step + 1);
  if (leads(report.rank))
    epoch_ends_[static_cast<Epoch>(report.epoch)] = newest_step_ = report.step;
  for (const auto& follower : followers_) follower->on_step(report);
}

// A rank that is lost may have reports on their way; one that returns leads again.
bool RunOutput::leads(Rank rank) {
  if (lost_ranks_.count(rank) > 0) return false;
  lead_ = std::min(rank, lead_.value_or(rank));
  return *lead_ == rank;
}

void RunOutput::on_figures(const RankFigures& figures) {
  for (const auto& follower : followers_) follower->on_figures(figures);
}

void RunOutput::on_rank_lost(Rank rank) {
  lost_ranks_.insert(rank);
  if (lead_ == rank) lead_.reset();
  for (const auto& follower : followers_) follower->on_rank_lost(rank);
}

void RunOutput::on_rank_returned(Rank rank) {
  lost_ranks_.erase(rank);
  for (const auto& follower : followers_) follower->on_rank_returned(rank);
}

void RunOutput::on_changed(const LiveSettings& changed) {
  if (changed_) changed_(changed);
  for (const auto& follower : followers_) follower->on_changed(changed);
}

void RunOutput::on_validation(Epoch epoch, const Evaluation& evaluation) {
  // Where ranks do not wait for each other, that rank may not have ended the epoch.
  const auto end = epoch_ends_.find(epoch);
  const Step step = end == epoch_ends_.end() ? newest_step_ : end->second;
  const auto time = epoch_times_.find(epoch);
  const std::string time_s = time == epoch_times_.end() ? "" : cell(time->second);
  add_row("0," + std::to_string(epoch) + ',' + std::to_string(step) + ',' + time_s + ",,,,,,,,," +
          exact_cell(evaluation.loss) + ',' + exact_cell(evaluation.top1) + ',' +
          exact_cell(evaluation.top5) + "\n");
  if (rows_) check(rows_->sync());  // the checkpoint of this epoch was there before it
  for (const auto& follower : followers_) follower->on_validation(epoch, step, evaluation);
}

void RunOutput::on_checkpoint(const std::string& /*path*/) {
  if (rows_) check(rows_->sync());
  for (const auto& follower : followers_) follower->on_checkpoint();
}

void RunOutput::on_idle() {
  if (rows_) check(rows_->write());
}

// Each error is reported once, when it begins.
void RunOutput::check(const Expected<void>& written) {
  if (rows_) lost_ += rows_->take_lost();
  const bool worked = written_.ok();
  written_ = written;
  if (worked && !written)
    warn(written.error().message + "; its rows wait until it can be written, up to 1 MiB of them");
}

void RunOutput::on_warning(const std::string& /*message*/) {
  for (const auto& follower : followers_) follower->on_warning();
}

void RunOutput::warn(const std::string& message) {
  spdlog::warn("{}", message);
  on_warning(message);
}

void RunOutput::on_steps_lost(std::int64_t count) {
  warn(path_ + " lacks " + std::to_string(count) +
       " steps: they came faster than they could be written");
}

void RunOutput::on_end(RunResult result) {
  if (!result.error && !result.interrupted) check(open_rows());  // also of a run without a step
  for (const auto& follower : followers_) follower->on_end();
  if (rows_) check(rows_->sync());
  if (lost_ > 0) warn(path_ + " lacks " + std::to_string(lost_) + " rows: see the warnings above");
  ended_ = true;
}

void RunOutput::on_failed(const std::string& why) noexcept {
  try {
    failure_ = why;
  } catch (const std::bad_alloc&) {  // then finished() reports that the last rows are missing
    return;
  }
  ended_ = true;
}

Expected<void> RunOutput::finished() const {
  if (!ended_)
    return Error{Errc::io, "'" + path_ +
                               "' is not complete: its last rows could not be written in time; "
                               "check its file system"};
  if (!failure_.empty()) return Error{Errc::io, "'" + path_ + "' is not complete: " + failure_};
  return written_;
}

}  // namespace grapevine
