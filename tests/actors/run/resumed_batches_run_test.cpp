// The batches of runs that are resumed, by the shipped actors in virtual time: what a rank had
// taken before the checkpoint is neither taken again nor left out. DealtBatches has random losses,
// joins and resumes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "messages/random.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace resumed_batches_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 5;

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
  return all;
}

// A gradient that a worker computes while the state is saved is of no step yet: it is asked for
// again, at the same batch. One that the role keeps, also where exchanges overlap or are late, is
// not.
TEST(ResumedBatches, ARankContinuesBehindTheLastBatchThatItHasTaken) {
  int compared = 0, held = 0;
  std::uint64_t seed = 0;
  for (const Case& c : cases()) {
    ++seed;
    SCOPED_TRACE(c.preset + (c.set.empty() ? "" : " with " + c.set.front().first) +
                 ", seed=" + std::to_string(seed));
    Scenario scenario;
    scenario.preset = c.preset;
    scenario.set = c.set;
    scenario.seed = seed;
    scenario.ranks = kRanks;
    scenario.folder = fresh_folder("batches-straight");
    RunConfig config = make_run(scenario);
    config.checkpoint_every_epochs = 0.5;
    const auto observer = std::make_shared<Quiet>();
    const RunResult straight = run_virtual(config, observer);
    ASSERT_FALSE(straight.error) << straight.error->message;
    ASSERT_GE(observer->checkpoints.size(), 2U);
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
  EXPECT_GT(compared, 100);
  EXPECT_GT(held, 0) << "no role kept gradients: little was tested";
}

// The checkpoint has no state of the rank, which is a member of its view. The run is continued by
// all, and what the rank had taken is not left out.
TEST(ResumedBatches, OfARankThatIsLostDuringTheLastCutCount) {
  int lost = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    Scenario scenario;
    scenario.preset = "ar";
    scenario.seed = seed;
    scenario.ranks = kRanks;
    scenario.steps = 40;
    scenario.folder = fresh_folder("batches-stopped");
    RunConfig config = make_run(scenario);
    config.world = std::make_shared<VirtualWorld>();
    config.world->control_delay = milliseconds(2);
    config.stop_at = milliseconds(1500);
    config.deaths = {{2, milliseconds(1500) + microseconds(rng() % 6000)}};
    const RunResult stopped = run_virtual(config, std::make_shared<Quiet>());
    ASSERT_FALSE(stopped.error) << stopped.error->message;
    const auto checkpoint = read_checkpoint(stopped.checkpoint);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    if (checkpoint->lost_batches.taken.count(2) == 0) continue;  // lost earlier, or not at all
    ++lost;
    EXPECT_GT(checkpoint->taken().at(2), kRanks);
    scenario.folder = fresh_folder("batches-continued");
    RunConfig again = make_run(scenario);
    again.resume = *checkpoint;
    const RunResult resumed = run_virtual(again, std::make_shared<Quiet>());
    ASSERT_FALSE(resumed.error) << resumed.error->message;
    EXPECT_TRUE(resumed.lost.empty());
    EXPECT_LE(resumed.batches.left_out, kRanks) << "at most one of each rank";
  }
  EXPECT_GT(lost, 1) << "no rank was lost during a cut: nothing was tested";
}

}  // namespace resumed_batches_run_test
}  // namespace grapevine
