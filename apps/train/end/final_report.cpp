#include "apps/train/end/final_report.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/record/files.hpp"
#include "apps/console/files/run_files.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/text/figures.hpp"
#include "apps/console/text/table.hpp"
#include "apps/train/model_file.hpp"
#include "apps/train/summary.hpp"
#include "apps/train/train_folder.hpp"

namespace grapevine {
namespace {

// The figures of the last model; without any where the run is asked to stop: the user waits for
// the stop; `evaluate` computes them later.
Expected<std::optional<Evaluation>> test_model(const TrainJob& job, const RunResult& result,
                                               const RunEnding& ending) {
  if (result.interrupted || ending.stop_requested()) return std::optional<Evaluation>();
  job.evaluator->on_evaluation_progress([&ending] { return !ending.stop_requested(); });
  auto evaluated = job.evaluator->evaluate(result.z, result.buffers);
  job.evaluator->on_evaluation_progress({});
  if (evaluated) return std::optional<Evaluation>(*evaluated);
  const bool none = ending.stop_requested() || job.data->info().test_size == 0;
  if (none) return std::optional<Evaluation>();
  return evaluated.error();
}

// A regression has no accuracy, but a loss on the test data.
bool shows_loss(const nlohmann::ordered_json& summary) {
  return summary.at("test_accuracy").is_null() && !summary.at("test_loss").is_null();
}

// Of a run whose members have changed: what the epochs lack or had twice. Empty: nothing.
std::string batches_line(const RunResult& result) {
  const BatchTally& batches = result.batches;
  if (result.views == 1 || batches.left_out + batches.again == 0) return "";
  return std::to_string(batches.left_out) + " batches were taken by no rank, " +
         std::to_string(batches.again) + " again: summary.json, batches\n";
}

void print_results(const TrainJob& job, const RunResult& result,
                   const nlohmann::ordered_json& summary, RunDisplay& display) {
  if (job.options.json) {
    display.say_result(json_text(summary, -1) + "\n");
    return;
  }
  const auto shown = [](const nlohmann::ordered_json& figure, int decimals) {
    return figure.is_null() ? std::string("-") : format_number(figure.get<double>(), decimals);
  };
  const bool loss = shows_loss(summary);
  Table table({"time", "samples/s", "loss", loss ? "test loss" : "test accuracy", "sent",
               "staleness", "consensus"});
  table.add_row({format_duration(from_seconds(result.seconds)),
                 format_rate(summary.at("samples_per_second").is_null()
                                 ? std::nan("")
                                 : summary.at("samples_per_second").get<double>()),
                 shown(summary.at("final_loss"), 4),
                 shown(summary.at(loss ? "test_loss" : "test_accuracy"), 4),
                 format_bytes(result.ledger.bytes_sent),
                 shown(summary.at("staleness").at("mean"), 2),
                 shown(summary.at("consensus_distance"), 4)});
  std::string text = table.to_string() + batches_line(result);
  std::error_code ignored;
  const std::string best = job.out + "/checkpoint/best";
  if (summary.contains("early_stopped"))
    text += "stopped early: " + std::to_string(job.options.early_stop) +
            " validations without a better one" +
            (std::filesystem::exists(best, ignored) ? "; the best one: " + best : "") + "\n";
  text += "outputs in " + job.out + ": summary.json metrics.csv model.pt job.toml checkpoint/" +
          (job.options.trace == "on" ? " trace/" : "") +
          (job.options.tensorboard ? " tensorboard/" : "") + "\n";
  display.say_result(std::move(text));
}

}  // namespace

nlohmann::ordered_json summary_before(const TrainJob& job, const RunResult& result) {
  if (result.error || result.interrupted || result.steps.empty() || !has_finished(job.out))
    return nullptr;
  const auto summary = run_summary(job.out);
  if (!summary) return nullptr;
  const Step steps = *std::max_element(result.steps.begin(), result.steps.end());
  const auto has = [&summary](const char* name, const nlohmann::ordered_json& value) {
    return summary->contains(name) && summary->at(name) == value;
  };
  const bool tested = job.data->info().test_size == 0 || !has("test_loss", nullptr);
  // One of another version may lack figures.
  const bool same = has("versions", version_facts()) && has("steps", steps);
  return tested && same && has("interrupted", false) ? *summary : nullptr;
}

Expected<void> report_end(const CLI::App& app, const TrainJob& job, const RunResult& result,
                          const RunTally& tally, const RunEnding& ending, RunDisplay& display) {
  const RecentLosses& losses = tally.losses();
  std::optional<Evaluation> test;
  Error evaluation_error;
  // An abandoned thread may still evaluate.
  const bool evaluates = !result.error && !ending.thread_left_behind && ending.before.is_null();
  Expected<void> saved;
  if (result.z.defined()) saved = save_model(job, result);
  if (result.z.defined() && evaluates) {
    auto tested = test_model(job, result, ending);
    if (tested)
      test = *tested;
    else
      evaluation_error = tested.error();
  }
  const auto vacant = static_cast<std::int64_t>(result.vacant.size());
  const double goodput = tally.goodput().ratio(result.ledger, job.options.workers - vacant);
  auto summary = make_summary(job, result, losses.mean(), goodput, test);
  add_origin(app, job, ending.date, summary);
  if (ending.early) summary["early_stopped"] = true;
  if (ending.reported_steps > 0) summary["reported_steps"] = ending.reported_steps;
  const std::optional<Error> broken = not_finite(result, losses, test, job.out);
  if (!result.error)
    for (const Error& problem :
         {saved ? Error{} : saved.error(), evaluation_error, broken.value_or(Error{})})
      if (!problem.message.empty() && !summary.contains("error"))
        summary["error"] = problem.message;
  if (saved && !ending.before.is_null()) summary = ending.before;
  const std::string text = json_text(summary, 2) + "\n";
  const auto written = write_file_atomically(job.out + "/summary.json", text);
  // It names the checkpoint to resume from. Where a full disk has ended the run, the summary often
  // fails as well.
  if (result.error && !written) spdlog::warn("{}", written.error().message);
  if (result.error) return *result.error;
  if (!saved) return saved;
  if (!written) return written;
  if (!evaluation_error.message.empty()) return evaluation_error;
  if (broken) return *broken;
  print_results(job, result, summary, display);
  return {};
}

}  // namespace grapevine
