#include "apps/summary.hpp"

#include <algorithm>
#include <cmath>

#include <torch/version.h>
#include <caf/config.hpp>

#ifndef TORCH_VERSION
#define TORCH_VERSION "1.13"
#endif

namespace grapevine {
namespace {

using nlohmann::ordered_json;

ordered_json figure(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
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
  return {{"mean", figure(sum / static_cast<double>(seconds.size()))},
          {"p50", figure(percentile(seconds, 0.5))},
          {"p99", figure(percentile(seconds, 0.99))}};
}

ordered_json staleness(const Ledger& ledger) {
  const HistogramSummary summary = summarize(ledger.staleness);
  return {{"mean", figure(summary.mean)},
          {"p50", summary.p50},
          {"p99", summary.p99},
          {"max", summary.max}};
}

// Ranks in the mean partial sum: with a gradient of this round, with older ones alone, with
// nothing.
ordered_json partial_sums(const Ledger& ledger, std::int64_t ranks) {
  double fresh = 0, stale = 0, absent = 0;
  for (const auto& [age, count] : ledger.joined)
    (age < 0 ? absent : age == 0 ? fresh : stale) += static_cast<double>(count);
  const double sums = (fresh + stale + absent) / static_cast<double>(ranks);
  return {{"sums", sums},
          {"active", (fresh + stale) / sums},
          {"fresh", fresh / sums},
          {"stale_only", stale / sums}};
}

std::string caf_version() {
  return std::to_string(CAF_VERSION / 10000) + "." + std::to_string(CAF_VERSION / 100 % 100) + "." +
         std::to_string(CAF_VERSION % 100);
}

}  // namespace

ordered_json make_summary(const TrainJob& job, const RunResult& result, double final_loss,
                          const std::optional<Evaluation>& test) {
  const double nan = std::nan("");
  const std::int64_t samples = result.ledger.samples;
  // A run that failed has no reports of its ranks: it says nothing rather than zero.
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
  summary["wall_seconds"] = figure(result.seconds);
  summary["samples_per_second"] =
      figure(known ? static_cast<double>(samples) / result.seconds : nan);
  summary["final_loss"] = figure(final_loss);
  summary["test_accuracy"] = figure(test ? test->top1 : nan);
  summary["test_loss"] = figure(test ? test->loss : nan);
  summary["bytes_sent"] = if_known(result.ledger.bytes_sent);
  summary["messages_sent"] = if_known(result.ledger.sent + result.ledger.sent_before);
  summary["consensus_distance"] = figure(known ? result.consensus_distance : nan);
  summary["weight_sum"] = figure(known ? result.weight_sum : nan);
  summary["staleness"] = staleness(result.ledger);
  summary["contributions"] = {{"produced", if_known(result.ledger.produced)},
                              {"applied", if_known(result.ledger.committed)},
                              {"pending", if_known(result.ledger.pending())},
                              {"dropped", if_known(result.ledger.dropped)}};
  if (!result.ledger.joined.empty())
    summary["partial"] = partial_sums(result.ledger, job.options.workers);
  summary["step_seconds"] = step_seconds(result.step_seconds);
  summary["interrupted"] = result.interrupted;
  summary["versions"] = {
      {"grapevine", GRAPEVINE_VERSION}, {"torch", TORCH_VERSION}, {"caf", caf_version()}};
  return summary;
}

std::string find_not_finite(const RunResult& result, const std::optional<double>& final_loss,
                            const std::optional<Evaluation>& test) {
  if (final_loss && !std::isfinite(*final_loss)) return "final_loss";
  if (test && !std::isfinite(test->loss)) return "test_loss";
  if (!std::isfinite(result.consensus_distance)) return "consensus_distance";
  return "";
}

}  // namespace grapevine
