#include "apps/simulate/advise_search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "algorithms/wiring/wiring.hpp"
#include "apps/simulate/sim_job.hpp"
#include "apps/simulate/sim_run.hpp"
#include "apps/train/live/live_settings.hpp"

namespace grapevine {
namespace {

struct Candidate {
  std::string algorithm;
  std::vector<std::string> set;

  std::string name() const {
    std::string text = algorithm;
    for (const std::string& assignment : set) text += " --set " + assignment;
    return text;
  }
};

// Every preset, and the variations that papers and networks suggest.
std::vector<Candidate> candidates(std::int32_t workers) {
  std::vector<Candidate> all;
  for (const Preset& preset : presets())
    if (preset.name != kCustomWiring) all.push_back({preset.name, {}});
  all.push_back({"osgp", {"wiring.staleness=4"}});
  all.push_back({"ar", {"wiring.overlap=true"}});
  all.push_back({"ar", {"wiring.compress=fp16"}});
  all.push_back({"local-sgd", {"wiring.local_steps=8"}});
  const std::int32_t quorum = (3 * workers + 3) / 4;
  if (quorum < workers)
    all.push_back({"eager-quorum", {"wiring.quorum=" + std::to_string(quorum)}});
  for (const std::int32_t node : {4, 8})
    if (workers % node == 0 && workers > node)
      all.push_back({"ar", {"wiring.hierarchy=" + std::to_string(node)}});
  return all;
}

// The exchange that ends a run is not one more where its steps are whole periods.
std::int64_t whole_periods(std::int64_t steps, const TrainOptions& train) {
  const auto wiring = effective_wiring(train);
  if (!wiring) return steps;
  const auto plan = resolve(*wiring);
  if (!plan) return steps;
  const std::int64_t period = plan->local.steps.by_epoch.at(0);
  return (steps + period - 1) / period * period;
}

SimOptions with(const Candidate& candidate, const SimOptions& base) {
  SimOptions options = base;
  options.train.algorithm = candidate.algorithm;
  options.train.set = candidate.set;
  options.train.wiring = {};
  return options;
}

// A variation may be what a preset has already. One that does not fit stays: the prediction says
// why.
std::vector<Candidate> distinct(std::vector<Candidate> all, const SimOptions& base) {
  std::set<std::map<std::string, std::string>> known;
  std::vector<Candidate> distinct;
  for (Candidate& candidate : all) {
    auto keys = resolved_values(with(candidate, base).train);
    if (!keys.empty() && !known.insert(std::move(keys)).second) continue;
    distinct.push_back(std::move(candidate));
  }
  return distinct;
}

Expected<Advice> predict(const SimOptions& base, const Candidate& candidate) {
  SimOptions options = with(candidate, base);
  options.train.steps = whole_periods(base.train.steps, options.train);
  options.train.log_every = options.train.steps;
  options.writes = false;
  options.train.trace = "off";
  auto made = make_sim_job(options);
  if (!made) return made.error();
  const SimOutcome outcome = run_sim(std::move(made->job.run), std::make_shared<UnseenRun>());
  const RunResult& result = outcome.result;
  if (result.error) return *result.error;
  double steps = 0;
  for (const Step of_rank : result.steps) steps += static_cast<double>(of_rank);
  steps /= static_cast<double>(result.steps.size());
  const HistogramSummary staleness = summarize(result.ledger.staleness);
  Advice advice;
  advice.algorithm = candidate.algorithm;
  advice.set = candidate.set;
  advice.step_seconds = result.seconds / steps;
  advice.bytes_per_step = static_cast<double>(result.ledger.bytes_sent) / steps;
  advice.staleness_mean = staleness.mean;
  advice.staleness_max = staleness.max;
  advice.command = "--algorithm " + candidate.name();
  return advice;
}

}  // namespace

Advices search_wirings(const SimOptions& base,
                       const std::function<void(std::size_t, std::size_t)>& progress) {
  Advices advices;
  const std::vector<Candidate> all =
      distinct(candidates(static_cast<std::int32_t>(base.train.workers)), base);
  for (std::size_t i = 0; i < all.size(); ++i) {
    progress(i, all.size());
    auto advice = predict(base, all[i]);
    if (advice)
      advices.ranked.push_back(*std::move(advice));
    else
      advices.unfit.emplace_back(all[i].name(), advice.error().message);
  }
  std::stable_sort(
      advices.ranked.begin(), advices.ranked.end(),
      [](const Advice& one, const Advice& other) { return one.step_seconds < other.step_seconds; });
  return advices;
}

}  // namespace grapevine
