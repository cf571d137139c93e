#include "apps/simulate/sim_output.hpp"

#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <utility>

#include "actors/record/files.hpp"
#include "apps/console/json_text.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/model_file.hpp"
#include "apps/train/summary.hpp"
#include "apps/train/train_folder.hpp"

namespace grapevine {
namespace {

// Gives each call to the figures and to the files. The losses of a stand-in for the parameters are
// in neither.
class BothObservers : public ForwardingObserver {
 public:
  BothObservers(std::shared_ptr<RunTally> tally, std::shared_ptr<RunOutput> rows, bool has_losses)
      : ForwardingObserver(std::move(tally)), rows_(std::move(rows)), has_losses_(has_losses) {}

  void on_step(const StepReport& given) override {
    constexpr int kRowsAtOnce = 1024;
    StepReport report = given;
    if (!has_losses_) report.loss = std::numeric_limits<double>::quiet_NaN();
    if (report.logged) rows_->on_step(report);
    report.logged = report.logged && has_losses_;
    ForwardingObserver::on_step(report);
    if (++steps_ % kRowsAtOnce == 0) rows_->on_idle();
  }
  void on_figures(const RankFigures& figures) override {
    ForwardingObserver::on_figures(figures);
    rows_->on_figures(figures);
  }
  void on_rank_lost(Rank rank) override {
    ForwardingObserver::on_rank_lost(rank);
    rows_->on_rank_lost(rank);
  }
  void on_rank_returned(Rank rank) override {
    ForwardingObserver::on_rank_returned(rank);
    rows_->on_rank_returned(rank);
  }
  void on_rank_joined(Rank rank) override {
    ForwardingObserver::on_rank_joined(rank);
    rows_->on_rank_joined(rank);
  }
  void on_changed(const LiveSettings& changed) override {
    rows_->on_changed(changed);  // the progress keeps its name
  }
  void on_validation(Epoch epoch, const Evaluation& evaluation) override {
    ForwardingObserver::on_validation(epoch, evaluation);
    rows_->on_validation(epoch, evaluation);
  }
  void on_checkpoint(const std::string& path) override {
    ForwardingObserver::on_checkpoint(path);
    rows_->on_checkpoint(path);
  }
  void on_warning(const std::string& message) override {
    ForwardingObserver::on_warning(message);
    rows_->on_warning(message);
  }
  void on_end(RunResult result) override {
    rows_->on_idle();
    ForwardingObserver::on_end(result);
    rows_->on_end(std::move(result));
  }

 private:
  const std::shared_ptr<RunOutput> rows_;
  const bool has_losses_;
  std::int64_t steps_ = 0;
};

// Simulated steps are so short that a display of each one would cost more than they do.
RunTally::Show shown_now_and_then(RunDisplay& display) {
  using Clock = std::chrono::steady_clock;
  return [&display, next = Clock::time_point()](const RunProgress& progress) mutable {
    const auto now = Clock::now();
    if (now < next && progress.step < progress.steps) return;
    next = now + std::chrono::milliseconds(50);
    display.show(progress);
  };
}

std::string hex(std::uint64_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return text;
}

}  // namespace

Expected<SimOutput> SimOutput::create(const CLI::App& app, SimJob& made, RunDisplay& display) {
  TrainJob& job = made.job;
  SimOutput output;
  output.app_ = &app;
  output.date_ = summary_date();
  const std::vector<EarlierOutput> earlier = earlier_outputs(job.out);
  auto rows = RunOutput::create(job.out + "/metrics.csv", {});
  if (!rows) return bad_input(rows.error().message);
  output.rows_ = *std::move(rows);
  output.rows_->before_first_step([earlier, path = job.out + "/" + kJobFileName,
                                   text = job_file_text(app, job),
                                   failed = output.job_file_error_] {
    remove_outputs(earlier);
    if (const auto written = write_file_atomically(path, text); !written) *failed = written.error();
  });
  RunProgress start;
  start.steps = job.run.parts->horizon.steps * job.options.workers;
  output.tally_ = std::make_shared<RunTally>(start, RecentLosses(), shown_now_and_then(display),
                                             job.options.workers);
  return output;
}

SimOutcome SimOutput::run(SimJob& made) {
  return run_sim(std::move(made.job.run),
                 std::make_shared<BothObservers>(tally_, rows_, made.stand_in == 0));
}

Expected<nlohmann::ordered_json> SimOutput::report(const SimJob& made,
                                                   const SimOutcome& outcome) const {
  const TrainJob& job = made.job;
  const RunResult& result = outcome.result;
  std::optional<Evaluation> test;
  std::optional<Error> problem;  // the first one
  const auto note = [&problem](const Error& error) {
    if (!problem) problem = error;
  };
  if (result.error) note(*result.error);
  if (*job_file_error_) note(**job_file_error_);
  const bool has_model = result.z.defined() && made.stand_in == 0;
  if (!result.error && has_model) {
    const auto evaluated = job.evaluator->evaluate(result.z, result.buffers);
    if (evaluated)
      test = *evaluated;
    else
      note(evaluated.error());
  }
  const RecentLosses& losses = tally_->losses();
  if (!result.error && has_model)
    if (const auto broken = not_finite(result, losses, test, job.out)) note(*broken);
  if (made.real && result.z.defined() && !result.error)
    if (const auto saved = save_model(job, result); !saved) note(saved.error());
  auto summary = make_summary(job, result, losses.mean(),
                              tally_->goodput().ratio(result.ledger, job.options.workers), test);
  if (problem && !summary.contains("error")) summary["error"] = problem->message;
  add_origin(*app_, job, date_, summary);
  if (made.stand_in > 0) {  // figures of parameters that mean nothing
    for (const char* key : {"final_loss", "consensus_distance"}) summary[key] = nullptr;
    summary["stand_in_parameters"] = made.stand_in;
  }
  summary["virtual_seconds"] = outcome.virtual_seconds;
  summary["trace_hash"] = hex(outcome.trace_hash);
  summary["events"] = outcome.events;
  summary["network"] = made.network;
  if (!made.network_note.empty()) summary["network_note"] = made.network_note;
  if (!made.faults.empty()) summary["faults"] = faults_text(made.faults);
  const auto written =
      write_file_atomically(job.out + "/summary.json", json_text(summary, 2) + "\n");
  if (!written && !problem) return written.error();
  if (problem) return *problem;
  if (const auto rows = rows_->finished(); !rows) return rows.error();
  return summary;
}

}  // namespace grapevine
