#include "apps/train/lead/head_run.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "actors/cluster/process_supervision.hpp"
#include "actors/record/files.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "apps/console/text/progress_bar.hpp"
#include "apps/console/text/terminal.hpp"
#include "apps/train/end/final_report.hpp"
#include "apps/train/end/requested_stop.hpp"
#include "apps/train/end/run_to_the_end.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/lead/announcement.hpp"
#include "apps/train/lead/services.hpp"
#include "apps/train/live/live_job.hpp"
#include "apps/train/resume/earlier_validations.hpp"
#include "apps/train/run_output.hpp"
#include "apps/train/run_tally.hpp"
#include "apps/train/summary.hpp"
#include "apps/train/train_folder.hpp"
#include "apps/train/train_resume.hpp"

namespace grapevine {
namespace {

Timestamp steady_now() {
  return std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch());
}

// The step from which the rows of each rank are new; empty: not a resumed run.
std::vector<Step> first_steps(const TrainJob& job) {
  if (!job.run.resume) return {};
  std::vector<Step> steps = job.run.resume->reported();
  steps.resize(static_cast<std::size_t>(job.run.workers()));  // servers take none
  return steps;
}

// metrics.csv beside the checkpoint of a resumed run; empty for a new run.
std::string rows_before(const TrainJob& job) {
  if (!job.run.resume) return "";
  const std::filesystem::path checkpoint = job.run.resume->path;
  return (checkpoint.parent_path().parent_path() / "metrics.csv").string();
}

OutputBefore output_before(const TrainJob& job) {
  if (!job.run.resume) return {};
  return {first_steps(job), job.saved_steps, whole_epochs(job.run.resumed_most()),
          rows_before(job)};
}

RunProgress progress_before(const TrainJob& job) {
  RunProgress progress;
  progress.steps = last_step(job) * job.options.workers;
  for (const Step step : first_steps(job)) progress.step += step;
  const Horizon& horizon = job.run.parts->horizon;
  progress.epochs = horizon.epoch_of(horizon.steps);
  return progress;
}

// In processes, each of which has as many ranks as this one.
RunBegin begin_of(const TrainJob& job) {
  const RunConfig& run = job.run;
  const auto of_each = static_cast<std::int32_t>(job.local_ranks.size());
  const std::int32_t begin = run.beginning_workers();
  const std::int32_t least = run.min_workers > 0 ? run.min_workers : begin / 2 + 1;
  const bool continues = changes_members(run.parts->plan);
  return {begin / of_each, run.workers() / of_each,
          continues ? (least + of_each - 1) / of_each : begin / of_each};
}

std::shared_ptr<RunTally> make_tally(const TrainJob& job, const RunOutput& output,
                                     RunDisplay& display) {
  auto tally = std::make_shared<RunTally>(
      progress_before(job), output.kept_losses(),
      [&display](const RunProgress& progress) { display.show(progress); }, job.options.workers);
  tally->stop_after(job.options.early_stop);
  if (job.run.parts->horizon.by_samples) tally->end_by_epochs();
  if (job.run.resume)
    tally->begin_after(earlier_validations(rows_before(job), output_before(job).epochs));
  if (std::getenv(kReportBeginVariable) != nullptr)
    tally->tell_begin(
        [&display, line = text_of(begin_of(job)) + "\n"] { display.say_error(line); });
  tally->tell_validations([&display](std::string line) { display.say_error(std::move(line)); });
  return tally;
}

class HeadRun {
 public:
  HeadRun(TrainJob& job, const CLI::App& app, const std::string& date, RunDisplay& display,
          SignalFlags& signals, Console& console)
      : job_(job),
        app_(app),
        date_(date),
        display_(display),
        signals_(signals),
        console_(console),
        hub_(std::make_shared<ControlHub>()),
        in_place_(continues_in_place(job)),
        output_in_use_(job.run.output_in_use) {}

  Expected<void> run() {
    job_.run.control = hub_;
    if (auto opened = open_outputs(); !opened) return opened;
    if (auto followed = add_followers(job_, first_steps(job_), *output_, display_); !followed)
      return followed;
    announce(job_, display_);
    if (job_.run.cluster)
      job_.run.cluster->job_text = clock_start_line(job_.start) + job_file_text(app_, job_);
    tally_ = make_tally(job_, *output_, display_);
    const auto live = follow_changes(app_, job_, *output_, display_);
    job_.run.job_file_with = [&app = app_,
                              begun = as_it_begins(job_)](const LiveSettings& settings) {
      ChangingJob changed = begun;
      changed.apply(settings);
      return changed.text(app);
    };
    auto control = listen_for_control(job_, *output_, display_);
    if (!control) return control.error();
    RunResult result = train();
    control->clear();
    live->put_into(job_);
    return report(result);
  }

 private:
  // metrics.csv and job.toml. What an earlier run has left stays until this one has taken a step.
  Expected<void> open_outputs() {
    const auto earlier = in_place_ ? std::vector<EarlierOutput>() : earlier_outputs(job_.out);
    const auto stale = in_place_ ? earlier_summary(job_.out) : std::vector<EarlierOutput>();
    auto output = RunOutput::create(job_.out + "/metrics.csv", output_before(job_));
    if (!output) return bad_input(output.error().message);  // nothing has been trained yet
    output_ = *std::move(output);
    auto late_job_file = leave_job_file();
    if (!late_job_file) return bad_input(late_job_file.error().message);
    // Before the first row and before the first checkpoint, whichever comes first.
    const auto clear = [once = std::make_shared<std::once_flag>(), earlier,
                        write_job = std::move(*late_job_file)] {
      std::call_once(*once, [&] {
        remove_outputs(earlier);
        write_job();
      });
    };
    output_->before_first_step([clear, stale] {
      clear();
      remove_outputs(stale);
    });
    job_.run.before_first_checkpoint = clear;
    return {};
  }

  // Writes job.toml now in a new folder. In one with an earlier run's outputs, these stay until
  // the first step: what is returned writes it then.
  Expected<std::function<void()>> leave_job_file() const {
    const std::string path = job_.out + "/" + kJobFileName;
    std::string text = job_file_text(app_, job_);
    std::error_code ignored;
    if (job_.run.output_in_use || std::filesystem::exists(path, ignored))
      return std::function<void()>([path, text = std::move(text)] {
        const auto written = write_file_atomically(path, text);
        if (!written) spdlog::warn("{}", written.error().message);
      });
    if (auto written = write_file_atomically(path, text); !written) return written.error();
    return std::function<void()>([] {});
  }

  // Runs to the end, or to an end that a signal asked for.
  RunResult train() {
    ProgressOptions progress;
    progress.label = job_.options.algorithm;
    progress.now = steady_now;
    progress.style = console_.terminal ? detect_terminal(STDERR_FILENO) : TerminalStyle{};
    progress.start = progress_before(job_);
    progress.start.step /= job_.options.workers;
    progress.start.steps /= job_.options.workers;
    display_.begin_progress(std::move(progress));
    const auto of_each = static_cast<std::int32_t>(job_.local_ranks.size());  // process
    const std::int32_t others = job_.launched ? job_.run.beginning_workers() / of_each - 1 : 0;
    if (others > 0)
      tally_->begin_phase("waiting for " + std::to_string(others) +
                          (others == 1 ? " other process" : " other processes"));
    const bool requeues = !job_.options.requeue_command.empty();
    RunResult result = run_to_the_end(std::move(job_.run), tally_, output_, signals_,
                                      requeues ? &requeue_ : nullptr, console_);
    display_.end_progress(!result.error);
    return result;
  }

  bool stop_requested() const {
    return requeue_ || signals_.stop_requested() || hub_->stop_requested();
  }

  RunEnding ending_of(const RunResult& result) const {
    RunEnding ending;
    ending.date = date_;
    ending.thread_left_behind = console_.thread_left_behind;
    ending.stop_requested = [this] { return stop_requested(); };
    ending.reported_steps = output_->reported_steps();
    ending.early = result.interrupted && tally_->wants_stop() && !stop_requested();
    return ending;
  }

  Expected<void> report(RunResult& result) {
    RunEnding ending = ending_of(result);
    if (ending.early) result.interrupted = false;  // as far as the user is concerned, it is done
    if (in_place_ && !tally_->begun()) ending.before = summary_before(job_, result);
    // A run without a step keeps the files of an earlier run.
    if (!tally_->begun() && result.error && has_summary(job_.out)) return *result.error;
    if (!tally_->begun() && result.interrupted && output_in_use_)
      return Error{Errc::failed,
                   "stopped by a signal before the first step: " + job_.out + " stays as it was"};
    const Expected<void> reported = report_end(app_, job_, result, *tally_, ending, display_);
    // An incomplete metrics.csv is an error, but only after the model is saved.
    const auto rows = output_->finished();
    if (!reported) return reported;
    if (!rows) return rows;
    if (!result.interrupted) return {};
    return end_of_stopped_run(job_, result.lacks_final, requeue_, [this] {
      output_.reset();
      job_.out_lock.reset();
      display_.drain([] { return true; });
    });
  }

  TrainJob& job_;
  const CLI::App& app_;
  const std::string& date_;
  RunDisplay& display_;
  SignalFlags& signals_;
  Console& console_;
  const std::shared_ptr<ControlHub> hub_;
  const bool in_place_;       // in the folder of the run that it continues
  const bool output_in_use_;  // the folder has the outputs of an earlier run
  bool requeue_ = false;      // a signal asked for --requeue-command
  std::shared_ptr<RunOutput> output_;
  std::shared_ptr<RunTally> tally_;
};

}  // namespace

Expected<void> lead_run(TrainJob& job, const CLI::App& app, const std::string& date,
                        RunDisplay& display, SignalFlags& signals, Console& console) {
  return HeadRun(job, app, date, display, signals, console).run();
}

}  // namespace grapevine
