// The batches of runs that are resumed: each of an epoch is taken once, or listed, also across the
// checkpoint. Random losses, returns, stops and numbers of ranks, by the shipped actors in virtual
// time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace resumed_batches_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::end_by_samples;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 5;
constexpr std::int64_t kBatches = 200;  // of training, at first: four epochs of 50

struct Asked {
  Step step = 0;
  std::int64_t batch = 0;
};
// The requests of each rank, in their order.
using Requests = std::map<Rank, std::vector<Asked>>;

class Recording : public Compute {
 public:
  Recording(std::shared_ptr<Compute> inner, Deal start, std::shared_ptr<Requests> requests)
      : inner_(std::move(inner)), start_(start), requests_(std::move(requests)) {}
  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }
  Gradient gradient(GradientRequest request) override {
    const Deal& deal = request.deal.ranks > 0 ? request.deal : start_;
    (*requests_)[start_.position].push_back({request.step, deal.batch_of(request.step)});
    return inner_->gradient(std::move(request));
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }

 private:
  const std::shared_ptr<Compute> inner_;
  const Deal start_;
  const std::shared_ptr<Requests> requests_;
};

Deal deal_of_start(Rank rank, std::int32_t ranks) { return {ranks, rank, 0, 0}; }

std::shared_ptr<Requests> record_requests(RunConfig& config) {
  const auto requests = std::make_shared<Requests>();
  const auto ranks = static_cast<std::int32_t>(config.computes.size());
  for (Rank rank = 0; rank < ranks; ++rank) {
    auto& compute = config.computes[static_cast<std::size_t>(rank)];
    compute = std::make_shared<Recording>(compute, deal_of_start(rank, ranks), requests);
  }
  return requests;
}

// The deal and the steps, from `first` to `end`, of the gradients that the rank had before its
// state was saved, and no step of which was reported.
struct Held {
  Deal deal;
  Step first = 0, end = 0;
};

// `workers`: with which the run of the checkpoint began.
Held held_in(const Checkpoint& checkpoint, Rank rank, std::int32_t workers) {
  const StateDict& state = checkpoint.ranks[static_cast<std::size_t>(rank)];
  Held held;
  held.deal = deal_of_start(rank, workers);
  held.first = reported_steps(state);
  held.end = taken_steps(state);
  const auto view = load_view(state, rank);
  EXPECT_TRUE(view.ok());
  if (!view.ok() || !view->has_value()) return held;
  held.deal = (*view)->deal;
  held.first = std::max(held.first, held.deal.first_step);
  if ((*view)->deal_is_new) held.end = held.first;
  return held;
}

struct Case {
  std::string preset;
  std::vector<std::pair<std::string, std::string>> set;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& preset : virtual_run_test::kPresets) all.push_back({preset, {}});
  all.push_back({"ar", {{"overlap", "true"}}});
  all.push_back({"local-sgd", {{"overlap", "true"}}});
  all.push_back({"diloco", {{"overlap", "true"}}});
  all.push_back({"osgp", {{"staleness", "3"}}});
  all.push_back({"eager-solo", {{"local_steps", "3"}}});
  return all;
}

// A gradient that a worker computes while the state is saved is of no step yet: it is asked for
// again, at the same batch. One that the role keeps, also where exchanges overlap or are late, is
// not.
TEST(ResumedBatches, ARankContinuesBehindTheLastBatchThatItHasTaken) {
  int compared = 0, held = 0;
  for (const Case& c : cases())
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(c.preset + (c.set.empty() ? "" : " with " + c.set.front().first) +
                   ", seed=" + std::to_string(seed));
      Scenario scenario;
      scenario.preset = c.preset;
      scenario.set = c.set;
      scenario.seed = seed;
      scenario.ranks = kRanks;
      scenario.folder = fresh_folder("batches-straight");
      RunConfig config = make_run(scenario);
      config.checkpoint_every_epochs = 0.2;
      const auto observer = std::make_shared<Quiet>();
      const RunResult straight = run_virtual(config, observer);
      ASSERT_FALSE(straight.error) << straight.error->message;
      ASSERT_GE(observer->checkpoints.size(), 3U);
      Rng rng(seed);
      const std::size_t chosen = rng() % (observer->checkpoints.size() - 1);
      scenario.folder = fresh_folder("batches-again");
      RunConfig again = make_run(scenario);
      const auto requests = record_requests(again);
      again.resume = *read_checkpoint(observer->checkpoints[chosen]);
      const Checkpoint checkpoint = *again.resume;
      const RunResult resumed = run_virtual(again, std::make_shared<Quiet>());
      ASSERT_FALSE(resumed.error) << resumed.error->message;
      for (const auto& [rank, asked] : *requests) {
        const Held before = held_in(checkpoint, rank, kRanks);
        EXPECT_EQ(asked.front().step, before.end) << "rank " << rank;
        EXPECT_EQ(asked.front().batch, before.deal.batch_of(before.end)) << "rank " << rank;
        held += before.end > before.first;
        ++compared;
      }
    }
  EXPECT_GT(compared, 250);
  EXPECT_GT(held, 20) << "no role kept gradients: little was tested";
}

// One run after the other, each from a checkpoint of the one before.
struct Chain {
  Chain(std::string chosen_preset, std::uint64_t seed)
      : preset(std::move(chosen_preset)), rng(seed) {
    while (!ended) run_once();
  }

  RunConfig next_config() {
    Scenario scenario;
    scenario.preset = preset;
    scenario.seed = 1 + runs;
    scenario.ranks = ranks;
    scenario.steps = (planned + ranks - 1) / ranks;
    scenario.steps_per_epoch = 50.0 / ranks;
    scenario.folder = fresh_folder("batches-" + std::to_string(runs % 2));
    RunConfig config = make_run(scenario);
    end_by_samples(config);
    config.checkpoint_every_epochs = 0.25;
    config.min_workers = 1;
    config.world = std::make_shared<VirtualWorld>();
    config.world->control_delay = milliseconds(2);  // so that ranks die during the last cut, too
    config.resume = resume;
    return config;
  }

  Rank any_rank() { return static_cast<Rank>(rng() % static_cast<std::uint64_t>(ranks)); }

  // A rank with a state remains.
  void add_faults(RunConfig& config) {
    const Duration stop = milliseconds(60) + microseconds(rng() % 200'000);
    if (runs < 4) config.stop_at = stop;
    Rank survivor = any_rank();
    while (resume && resume->is_lost(survivor)) survivor = any_rank();
    for (int i = 0; i < 3; ++i) {
      const Rank rank = any_rank();
      if (rank == survivor) continue;
      const Duration death = rng() % 2 == 0 ? stop + microseconds(rng() % 4000)
                                            : Duration(microseconds(rng() % 200'000));
      config.deaths.push_back({rank, death});
      if (rng() % 2 == 0)
        config.returns.push_back({rank, death + microseconds(1 + rng() % 40'000)});
    }
  }

  void run_once() {
    RunConfig config = next_config();
    const auto requests = record_requests(config);
    add_faults(config);
    const auto observer = std::make_shared<Reported>(requests);
    const RunResult result = run_virtual(config, observer);
    ++runs;
    error = result.error ? result.error->message : "";
    if (error.empty() && result.checkpoint.empty()) error = "no checkpoint";
    unfinished += ranks * result.views;
    batches = result.batches;
    const bool extended = !result.interrupted && rng() % 2 == 0;
    ended = !error.empty() || runs >= 6 || (!result.interrupted && !extended);
    if (ended) return observer->add_all(times);
    if (extended) planned += 100;
    const auto chosen = rng() % 3 == 0 && !observer->checkpoints.empty()
                            ? observer->checkpoints[rng() % observer->checkpoints.size()]
                            : result.checkpoint;
    resume_from(chosen, *observer);
  }

  // The steps that were reported, with their batches.
  struct Reported : Quiet {
    struct One {
      StepReport step;
      std::int64_t batch = 0;
    };
    explicit Reported(std::shared_ptr<Requests> of) : requests(std::move(of)) {}
    void on_step(const StepReport& report) override {
      const std::vector<Asked>& asked = requests->at(report.rank);
      const auto newest = std::find_if(asked.rbegin(), asked.rend(),
                                       [&](const Asked& one) { return one.step == report.step; });
      all.push_back({report, newest->batch});
    }
    void add_all(std::map<std::int64_t, int>& times) const {
      for (const One& one : all) ++times[one.batch];
    }
    const std::shared_ptr<Requests> requests;
    std::vector<One> all;
  };

  // What was taken before the cut: in earlier views, by ranks without a state, and as far as the
  // states say.
  void resume_from(const std::string& path, const Reported& observer) {
    resume = *read_checkpoint(path);
    const auto view = resume->view();
    const std::int64_t number = view.ok() && view->has_value() ? (*view)->number : 0;
    for (const auto& [report, batch] : observer.all) {
      const bool in_view = report.view == number && has_taken(report);
      if (report.view < number || in_view) ++times[batch];
    }
    for (std::size_t rank = 0; rank < resume->ranks.size(); ++rank) {
      if (resume->is_lost(static_cast<Rank>(rank))) continue;
      const Held held = held_in(*resume, static_cast<Rank>(rank), ranks);
      for (Step step = held.first; step < held.end; ++step) ++times[held.deal.batch_of(step)];
    }
    saved_ahead += !resume->lost_batches.ahead.empty();
    saved_taken += !resume->lost_batches.taken.empty();
    if (rng() % 3 > 0) return;
    const auto count = static_cast<std::int32_t>(3 + rng() % 5);
    if (!changes_ranks(*resolve(find_preset(preset)->wiring)) || count == ranks) return;
    if (resume->change_ranks(count, 0, 0).ok()) ranks = count;
  }

  bool has_taken(const StepReport& report) const {
    if (resume->is_lost(report.rank)) return true;
    return report.step < reported_steps(resume->ranks[static_cast<std::size_t>(report.rank)]);
  }

  const std::string preset;
  Rng rng;
  std::int32_t ranks = kRanks;
  std::int64_t planned = kBatches;
  std::uint64_t runs = 0;
  std::optional<Checkpoint> resume;
  bool ended = false;
  std::string error;
  std::map<std::int64_t, int> times;  // that each batch was taken
  std::int64_t unfinished = 0;        // gradients at most whose exchange was given up
  BatchTally batches;                 // of the last run
  int saved_ahead = 0, saved_taken = 0;
};

std::vector<std::int64_t> named(const std::vector<BatchTally::Named>& runs) {
  std::vector<std::int64_t> all;
  for (const auto& [epoch, run] : runs)
    for (std::int64_t i = 0; i < run.count; ++i)
      all.push_back(epoch * 50 + run.first + i * run.stride);
  return all;
}

// But for gradients whose exchange was given up: their batches are taken, and no step reports them.
TEST(ResumedBatches, EachOneIsTakenOnceOrListedAcrossCheckpoints) {
  int resumed = 0, saved_ahead = 0, saved_taken = 0;
  std::int64_t left_out = 0, again = 0;
  for (const std::string preset : {"ar", "sgp", "ad-psgd", "eager-majority", "local-sgd"})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      const Chain chain(preset, seed);
      ASSERT_TRUE(chain.ended && chain.error.empty()) << chain.error;
      std::int64_t missing = 0, twice = 0;
      for (std::int64_t batch = 0; batch < chain.planned; ++batch)
        missing += chain.times.count(batch) == 0;
      for (const auto& [batch, times] : chain.times) twice += std::max(0, times - 1);
      for (const std::int64_t batch : named(chain.batches.left_out_runs))
        EXPECT_EQ(chain.times.count(batch), 0U) << "batch " << batch << " was taken";
      EXPECT_GE(missing, chain.batches.left_out);
      EXPECT_LE(missing, chain.batches.left_out + chain.unfinished);
      EXPECT_LE(twice, chain.batches.again);
      EXPECT_LE(chain.batches.again, twice + chain.unfinished);
      resumed += static_cast<int>(chain.runs) - 1;
      saved_ahead += chain.saved_ahead;
      saved_taken += chain.saved_taken;
      left_out += chain.batches.left_out;
      again += chain.batches.again;
    }
  EXPECT_GT(resumed, 60);
  EXPECT_GT(saved_ahead, 5) << "no checkpoint had batches that were dealt again";
  EXPECT_GT(saved_taken, 5) << "no rank was lost during the last cut";
  EXPECT_GT(left_out, 40);
  EXPECT_GT(again, 5);
}

}  // namespace resumed_batches_run_test
}  // namespace grapevine
