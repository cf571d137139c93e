#include "apps/train/summary.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include <torch/version.h>
#include <caf/config.hpp>

#include "actors/protocol/supervisor.hpp"
#include "apps/console/json_text.hpp"
#include "apps/train/job_file.hpp"

#ifndef TORCH_VERSION
#define TORCH_VERSION "1.13"
#endif

namespace grapevine {
namespace {

using nlohmann::ordered_json;

// Of so many samples, as a ratio of whole numbers: a mean over batches differs in its last digits.
double exact_ratio(double ratio, std::int64_t samples) {
  const auto count = static_cast<double>(samples);
  const double hits = std::round(ratio * count);
  // Where one sample has several labels, as text has, there are more of them.
  return std::abs(ratio * count - hits) < 1e-6 ? hits / count : ratio;
}

// Nearest-rank percentile of sorted values; NaN where there are none.
double percentile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return std::nan("");
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(1, rank) - 1];
}

ordered_json step_seconds(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  double sum = 0;
  for (const double s : seconds) sum += s;
  return {{"mean", json_number(sum / static_cast<double>(seconds.size()))},
          {"p50", json_number(percentile(seconds, 0.5))},
          {"p99", json_number(percentile(seconds, 0.99))}};
}

ordered_json staleness(const Ledger& ledger) {
  const HistogramSummary summary = summarize(ledger.staleness);
  return {{"mean", json_number(summary.mean)},
          {"p50", summary.p50},
          {"p99", summary.p99},
          {"max", summary.max}};
}

// Contributions of ranks to partial sums: a gradient or model of that round, only older ones, or
// none.
ordered_json partial_shares(const Ledger& ledger) {
  double fresh = 0, stale = 0, absent = 0;
  for (const auto& [age, count] : ledger.contributed)
    (age < 0 ? absent : age == 0 ? fresh : stale) += static_cast<double>(count);
  const double all = fresh + stale + absent;
  return {{"fresh", fresh / all}, {"stale_only", stale / all}, {"absent", absent / all}};
}

// ---- servers

ordered_json entry_of(const StateDict& measures, const std::string& name) {
  const auto it = measures.entries().find(name);
  if (it == measures.entries().end()) return nullptr;
  if (const auto* number = std::get_if<double>(&it->second)) return json_number(*number);
  if (const auto* integer = std::get_if<std::int64_t>(&it->second)) return *integer;
  return nullptr;
}

bool is_of_server(const StateDict& measures) { return measures.entries().count("commits") > 0; }

ordered_json one_server(const StateDict& m) {
  const auto of = [&m](const char* name) { return entry_of(m, name); };
  const auto windows = m.integer("windows");
  const bool any_window = windows && *windows > 0;
  return {
      {"commits", of("commits")},
      {"refused", of("refused")},
      {"taken_back", of("taken_back")},
      {"queue_wait_seconds",
       {{"p50", of("wait_p50_s")}, {"p99", of("wait_p99_s")}, {"max", of("wait_max_s")}}},
      {"jain_index", any_window ? ordered_json{{"mean", of("jain_mean")}, {"min", of("jain_min")}}
                                : ordered_json(nullptr)},
      {"inversions", of("inversions")},
      {"occupancy", of("occupancy")}};
}

// Sums over clients of the entry `name`, element by element; empty where no client has it.
std::vector<double> sum_of(const RunResult& result, const std::string& name) {
  std::vector<double> sums;
  for (const auto& [rank, measures] : result.measures) {
    const auto tensor = measures.tensor(name);
    if (!tensor) continue;
    sums.resize(std::max(sums.size(), static_cast<std::size_t>(tensor->numel())), 0);
    const double* values = tensor->data_ptr<double>();
    for (std::int64_t i = 0; i < tensor->numel(); ++i)
      sums[static_cast<std::size_t>(i)] += values[i];
  }
  return sums;
}

ordered_json ratios(const std::vector<double>& sums, const std::vector<double>& counts) {
  ordered_json list = ordered_json::array();
  for (std::size_t i = 0; i < sums.size(); ++i)
    list.push_back(counts[i] > 0 ? json_number(sums[i] / counts[i]) : ordered_json(nullptr));
  return list;
}

// Gradient energy matching: energies by tenths of the run, the median pi of each tensor.
ordered_json energy_block(const TrainJob& job, const RunResult& result) {
  const std::vector<double> counts = sum_of(result, "energy_samples");
  ordered_json medians = ordered_json::object();
  const std::vector<double> sums = sum_of(result, "pi_medians");
  double samples = 0;
  for (const auto& [rank, measures] : result.measures) {
    const auto count = measures.number("pi_samples");
    if (count) samples += *count;
  }
  for (std::size_t i = 0; i < sums.size() && i < job.made_parts->layout.size(); ++i)
    medians[job.made_parts->layout[i].name] =
        json_number(samples > 0 ? sums[i] / samples : std::nan(""));
  return {{"proxy", ratios(sum_of(result, "proxy_energy"), counts)},
          {"central", ratios(sum_of(result, "central_energy"), counts)},
          {"median_pi", medians}};
}

ordered_json server_block(const TrainJob& job, const RunResult& result) {
  ordered_json block;
  ordered_json histogram = ordered_json::object();
  for (const auto& [tau, count] : result.ledger.staleness) histogram[std::to_string(tau)] = count;
  block["staleness_histogram"] = histogram;
  block["servers"] = ordered_json::array();
  for (const auto& [rank, measures] : result.measures)
    if (is_of_server(measures)) block["servers"].push_back(one_server(measures));
  const bool has_energy = std::any_of(
      result.measures.begin(), result.measures.end(),
      [](const auto& measures) { return measures.second.entries().count("energy_samples") > 0; });
  if (has_energy) block["energy"] = energy_block(job, result);
  return block;
}

// At the end: the wiring may have changed.
bool has_servers(const RunResult& result) {
  return std::any_of(result.measures.begin(), result.measures.end(),
                     [](const auto& measures) { return is_of_server(measures.second); });
}

// The share of time in which the GPU of each rank has worked, after its first steps
// (StepMeter::gpu_busy). Null: it is known of no rank, as on the CPU.
ordered_json gpu_busy(const RunResult& result) {
  ordered_json ranks = ordered_json::object();
  double sum = 0;
  for (const auto& [rank, measures] : result.measures) {
    const auto busy = measures.number(kGpuBusy);
    if (!busy) continue;
    ranks[std::to_string(rank)] = json_number(*busy);
    sum += *busy;
  }
  if (ranks.empty()) return nullptr;
  const double mean = sum / static_cast<double>(ranks.size());
  return {{"mean", json_number(mean)}, {"ranks", std::move(ranks)}};
}

ordered_json batch_runs(const std::vector<BatchTally::Named>& runs) {
  ordered_json list = ordered_json::array();
  for (const auto& [epoch, run] : runs)
    list.push_back(
        {{"epoch", epoch}, {"first", run.first}, {"stride", run.stride}, {"count", run.count}});
  return list;
}

ordered_json batch_block(const BatchTally& tally) {
  return {{"left_out", tally.left_out},
          {"taken_again", tally.again},
          {"left_out_runs", batch_runs(tally.left_out_runs)},
          {"taken_again_runs", batch_runs(tally.again_runs)}};
}

std::string caf_version() {
  return std::to_string(CAF_VERSION / 10000) + "." + std::to_string(CAF_VERSION / 100 % 100) + "." +
         std::to_string(CAF_VERSION % 100);
}

}  // namespace

ordered_json make_summary(const TrainJob& job, const RunResult& result, double final_loss,
                          double goodput, const std::optional<Evaluation>& test) {
  const double nan = std::nan("");
  const std::int64_t samples = result.ledger.samples;
  // A run that failed has no reports of its ranks: it omits the figures instead of printing zero.
  const bool known = !result.steps.empty();
  const auto if_known = [known](ordered_json value) {
    return known ? std::move(value) : ordered_json(nullptr);
  };
  ordered_json summary;
  summary["algorithm"] = job.options.algorithm;
  summary["wiring"] = job.wiring.keys();
  summary["model"] = job.options.model;
  summary["data"] = job.options.data;
  summary["workers"] = job.options.workers;
  summary["parameters"] = job.parameters;
  summary["steps"] =
      known ? ordered_json(*std::max_element(result.steps.begin(), result.steps.end())) : nullptr;
  summary["samples"] = if_known(samples);
  summary["seed"] = job.options.seed;
  summary["wall_seconds"] = json_number(result.seconds);
  summary["samples_per_second"] =
      json_number(known ? static_cast<double>(samples) / result.seconds : nan);
  summary["final_loss"] = json_number(final_loss);
  summary["test_accuracy"] = json_number(test ? exact_ratio(test->top1, test->samples) : nan);
  summary["test_loss"] = json_number(test ? test->loss : nan);
  summary["bytes_sent"] = if_known(result.ledger.bytes_sent);
  summary["messages_sent"] = if_known(result.ledger.sent + result.ledger.sent_before);
  summary["consensus_distance"] = json_number(known ? result.consensus_distance : nan);
  summary["weight_sum"] = json_number(known ? result.weight_sum : nan);
  summary["staleness"] = staleness(result.ledger);
  for (auto& value : summary["staleness"]) value = if_known(value);
  summary["contributions"] = {{"produced", if_known(result.ledger.produced)},
                              {"applied", if_known(result.ledger.committed)},
                              {"pending", if_known(result.ledger.pending() - result.destroyed)},
                              {"dropped", if_known(result.ledger.dropped)},
                              {"destroyed", if_known(result.destroyed)}};
  if (!result.ledger.contributed.empty()) summary["partial"] = partial_shares(result.ledger);
  summary["lost_ranks"] = result.lost;
  if (!result.vacant.empty() || result.joined > 0) {
    summary["vacant_ranks"] = result.vacant;
    summary["joined_ranks"] = result.joined;
  }
  summary["views"] = result.views;
  summary["batches"] = batch_block(result.batches);
  summary["goodput"] = json_number(known ? goodput : nan);
  if (has_servers(result)) summary["server"] = server_block(job, result);
  summary["step_seconds"] = step_seconds(result.step_seconds);
  if (auto busy = gpu_busy(result); !busy.is_null()) summary["gpu_busy"] = std::move(busy);
  summary["interrupted"] = result.interrupted;
  summary["versions"] = version_facts();
  if (result.error) summary["error"] = result.error->message;
  return summary;
}

ordered_json version_facts() {
  return {{"grapevine", GRAPEVINE_VERSION}, {"torch", TORCH_VERSION}, {"caf", caf_version()}};
}

std::string summary_date() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char date[40];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S%z", &local);
  return date;
}

void add_origin(const CLI::App& app, const TrainJob& job, const std::string& date,
                ordered_json& summary) {
  ordered_json options = ordered_json::object();
  for (auto& [name, value] : stated_options(app, resolved_options(job), job.wiring))
    options[name] = std::move(value);
  summary["options"] = std::move(options);
  char host[256] = "";
  summary["host"] = ::gethostname(host, sizeof host - 1) == 0 ? host : "";
  summary["date"] = date;
  summary["out"] = job.out;
}

std::optional<Error> not_finite(const RunResult& result, const RecentLosses& losses,
                                const std::optional<Evaluation>& test, const std::string& out) {
  const auto is = [&out](const std::string& figure) {
    return Error{Errc::failed,
                 figure + " is not finite: try a smaller --lr; see " + out + "/metrics.csv"};
  };
  // Where no step was logged there is no final loss.
  if (!losses.empty() && !std::isfinite(losses.mean())) return is("final_loss");
  if (test && !std::isfinite(test->loss)) return is("test_loss");
  if (!std::isfinite(result.consensus_distance)) return is("consensus_distance");
  return std::nullopt;
}

}  // namespace grapevine
