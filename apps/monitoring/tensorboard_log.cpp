#include "apps/monitoring/tensorboard_log.hpp"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "actors/record/files.hpp"

namespace grapevine {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// As TensorBoard requires it: it recognises event files by the middle part, and reads those of a
// folder in the order of their names.
std::string event_file_name() {
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0) std::snprintf(host, sizeof host, "localhost");
  char name[320];
  std::snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s",
                static_cast<long long>(wall_seconds()), host);
  return name;
}

std::string run_of(Rank rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%04d", static_cast<int>(rank));
  return name;
}

}  // namespace

Expected<std::unique_ptr<TensorBoardLog>> TensorBoardLog::create(
    const std::filesystem::path& folder, const std::vector<Step>& first_steps,
    std::function<void(const std::string&)> warn) {
  if (auto writable = ensure_writable_directory(folder); !writable) return writable.error();
  return std::unique_ptr<TensorBoardLog>(new TensorBoardLog(folder, first_steps, std::move(warn)));
}

TensorBoardLog::TensorBoardLog(std::filesystem::path folder, std::vector<Step> first_steps,
                               std::function<void(const std::string&)> warn)
    : folder_(std::move(folder)),
      first_steps_(std::move(first_steps)),
      file_name_(event_file_name()),
      warn_(std::move(warn)) {}

void TensorBoardLog::on_step(const StepReport& report) {
  if (report.logged) {
    file_of(report.rank)
        .add(wall_seconds(), report.step,
             {{"train/loss", report.loss},
              {"train/top1", report.top1},
              {"train/top5", report.top5},
              {"train/lr", report.lr},
              {"train/epoch", report.epoch},
              {"train/staleness", report.staleness},
              {"seconds/step", report.batch_time_s},
              {"seconds/waiting_for_ranks", report.exchange_time_s},
              {"seconds/waiting_for_data", report.data_time_s}});
  }
  if (Clock::now() - flushed_ >= kFlushInterval) flush();
}

void TensorBoardLog::on_validation(Epoch /*epoch*/, Step step, const Evaluation& evaluation) {
  file("validation", first_steps_.empty() ? 0 : first_steps_.front())
      .add(wall_seconds(), step,
           {{"validation/loss", evaluation.loss},
            {"validation/top1", evaluation.top1},
            {"validation/top5", evaluation.top5}});
  flush();
}

EventFile& TensorBoardLog::file(const std::string& run, Step first_step) {
  const auto found = files_.find(run);
  if (found != files_.end()) return found->second;
  return files_.try_emplace(run, folder_ / run / file_name_, wall_seconds(), first_step)
      .first->second;
}

EventFile& TensorBoardLog::file_of(Rank rank) {
  const auto index = static_cast<std::size_t>(rank);
  return file(run_of(rank), index < first_steps_.size() ? first_steps_[index] : 0);
}

void TensorBoardLog::flush() {
  flushed_ = Clock::now();
  for (auto& [run, file] : files_) {
    const auto flushed = file.flush();
    if (flushed || failed_) continue;
    failed_ = true;
    warn_("--tensorboard: " + flushed.error().message +
          "; training continues, and the curves wait in memory until it can be written, the first "
          "256 KiB of each file");
  }
}

}  // namespace grapevine
