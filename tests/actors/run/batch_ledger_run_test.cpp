// The batches of runs with losses and joins, by the shipped actors in virtual time: what the
// workers were asked for, gradient by gradient, beside the `batches` of the result. Every batch of
// every epoch is used or listed as left out, and each further use of one is listed, too.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "messages/random.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace batch_ledger_run_test {

using std::chrono::microseconds;
using virtual_run_test::end_by_samples;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 5;
constexpr std::int64_t kPerEpoch = 50;
constexpr std::int64_t kPlanned = 4 * kPerEpoch;  // batches of training

// How often batches were used, by batch.
using Times = std::map<std::int64_t, std::int64_t>;

// Where the uses of a few gradients cannot be known from outside: `most` has them, `least` has not.
struct Uses {
  Times least, most;
};

std::int64_t unused(const Times& times) {
  std::int64_t count = 0;
  for (std::int64_t batch = 0; batch < kPlanned; ++batch) count += times.count(batch) == 0;
  return count;
}

std::int64_t used_again(const Times& times) {
  std::int64_t count = 0;
  for (const auto& [batch, uses] : times)
    if (batch < kPlanned) count += uses - 1;
  return count;
}

// Receives the requests of all workers and the reports of the run. A rank that remains in the run
// has used each gradient that it has taken; of a lost one those count that it had reported.
class WorkersLedger : public Quiet {
 public:
  // A rank asks for a gradient; `newest`: the number of the one that it, or the rank whose state it
  // has taken, took last; 0: none. Returns the number of this one.
  std::int64_t ask(Rank rank, const Deal& deal, Step step, std::int64_t newest) {
    if (const auto found = numbers_.find(newest); found != numbers_.end())
      found->second->taken = true;
    std::vector<Life>& lives = lives_[rank];
    if (lives.empty()) lives.emplace_back();
    std::list<Share>& shares = lives.back().shares;
    if (shares.empty() || !(shares.back().deal == deal)) shares.push_back({deal, {}});
    Asked& asked = shares.back().gradients[step] = {};
    numbers_[++count_] = &asked;
    newest_first_ = std::max(newest_first_, deal.first_batch);
    return count_;
  }

  void on_step(const StepReport& report) override {
    if (report.taken == 0) return;
    std::list<Share>& shares = lives_[report.rank].back().shares;
    ASSERT_FALSE(shares.empty());
    std::int64_t reported = 0;
    for (auto& [step, gradient] : shares.back().gradients)
      if (step - shares.back().deal.first_step < report.taken) gradient.reported = true, ++reported;
    EXPECT_EQ(reported, report.taken) << "rank " << report.rank << " has not asked for so many";
  }
  void on_rank_lost(Rank rank) override {
    std::vector<Life>& lives = lives_[rank];
    if (lives.empty()) return;
    const std::list<Share>& shares = lives.back().shares;
    lives.back().lost = true;
    lives.back().is_known = shares.empty() || newest_first_ <= shares.back().deal.first_batch;
  }
  void on_rank_returned(Rank rank) override { lives_[rank].emplace_back(); }
  void on_rank_joined(Rank rank) override { lives_[rank].emplace_back(); }

  Uses uses() const {
    Uses uses;
    for (const auto& [rank, lives] : lives_)
      for (const Life& life : lives) add(life, uses);
    return uses;
  }

 private:
  struct Asked {
    bool taken = false;     // as later requests show
    bool reported = false;  // that it was taken
  };
  // What a rank asked for in one view, by step. A request that the rank gave up, and made again, is
  // one entry.
  struct Share {
    Deal deal;
    std::map<Step, Asked> gradients;
  };
  // Of a rank, until its loss.
  struct Life {
    std::list<Share> shares;
    bool lost = false;
    bool is_known = true;  // lost in the view of its last share
  };

  static void add(const Life& life, Uses& uses) {
    for (const Share& share : life.shares) {
      const bool is_last = &share == &life.shares.back();
      for (const auto& [step, gradient] : share.gradients) {
        const std::int64_t batch = share.deal.batch_of(step);
        const bool counts = gradient.reported || (gradient.taken && !(is_last && life.lost));
        const bool may_count = is_last && !(life.lost && life.is_known);
        if (counts) ++uses.least[batch];
        if (counts || may_count) ++uses.most[batch];
      }
    }
  }

  std::map<Rank, std::vector<Life>> lives_;
  std::map<std::int64_t, Asked*> numbers_;
  std::int64_t count_ = 0;
  std::int64_t newest_first_ = 0;  // the largest first batch of a view
};

// Its buffers are the number of the gradient that they come with: a rank has those of the gradient
// that it took last.
class Numbering : public Compute {
 public:
  Numbering(std::shared_ptr<Compute> inner, Rank rank, std::shared_ptr<WorkersLedger> ledger)
      : inner_(std::move(inner)), rank_(rank), ledger_(std::move(ledger)) {}
  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return buffers_of(0); }
  Gradient gradient(GradientRequest request) override {
    Deal deal = request.deal;
    if (deal.ranks == 0) deal = {kRanks, rank_, 0, 0};  // of the start
    const auto newest = static_cast<std::int64_t>(request.buffers.read().item<float>());
    const std::int64_t number = ledger_->ask(rank_, deal, request.step, newest);
    Gradient made = inner_->gradient(std::move(request));
    made.buffers = buffers_of(number);
    return made;
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }

 private:
  static FrozenTensor buffers_of(std::int64_t number) {
    return FrozenTensor::freeze(at::full({1}, static_cast<double>(number), at::kFloat));
  }

  const std::shared_ptr<Compute> inner_;
  const Rank rank_;
  const std::shared_ptr<WorkersLedger> ledger_;
};

// Ranks die at random, two of them for good at most, and the others return; every other run begins
// with a vacant place that a rank takes.
RunConfig make_config(const std::string& preset, std::uint64_t seed) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = kRanks;
  scenario.seed = seed;
  scenario.steps = 40;
  scenario.steps_per_epoch = 10;
  RunConfig config = make_run(scenario);
  end_by_samples(config);
  config.min_workers = 1;
  Rng rng(mix_seed(seed, 77));
  const auto at_most = [&rng](int us) {
    return microseconds(static_cast<std::int64_t>(rng() % static_cast<std::uint64_t>(us)));
  };
  if (seed % 2 == 0) {
    config.initial_workers = kRanks - 1;
    config.returns.push_back({kRanks - 1, at_most(500'000)});
  }
  int for_good = 0;
  for (std::uint64_t deaths = 1 + rng() % 3; deaths > 0; --deaths) {
    const Rank rank = static_cast<Rank>(rng() % kRanks);
    const Duration death = at_most(1'200'000);
    config.deaths.push_back({rank, death});
    if (rng() % 2 == 0 && ++for_good <= 2) continue;
    config.returns.push_back({rank, death + microseconds(1) + at_most(150'000)});
  }
  return config;
}

std::vector<std::int64_t> named(const std::vector<BatchTally::Named>& runs) {
  std::vector<std::int64_t> all;
  for (const auto& [epoch, run] : runs)
    for (std::int64_t i = 0; i < run.count; ++i)
      all.push_back(epoch * kPerEpoch + run.first + i * run.stride);
  return all;
}

// The lists name what the counts count, as far as they go.
void expect_named(const BatchTally& tally, const Uses& uses) {
  const std::vector<std::int64_t> left_out = named(tally.left_out_runs);
  for (const std::int64_t batch : left_out) {
    EXPECT_LT(batch, kPlanned) << "is of no epoch";
    EXPECT_EQ(uses.least.count(batch), 0U) << "batch " << batch << " was used";
  }
  EXPECT_EQ(std::set<std::int64_t>(left_out.begin(), left_out.end()).size(), left_out.size());
  for (const std::int64_t batch : named(tally.again_runs)) {
    EXPECT_LT(batch, kPlanned) << "is of no epoch";
    const auto most = uses.most.find(batch);
    EXPECT_TRUE(most != uses.most.end() && most->second > 1) << "batch " << batch;
  }
  if (tally.left_out_runs.size() < BatchTally::kMostNamed) {
    EXPECT_EQ(static_cast<std::int64_t>(left_out.size()), tally.left_out);
  }
}

TEST(BatchLedger, EachBatchOfEachEpochIsUsedOrListed) {
  int runs = 0, exact = 0;
  std::int64_t left_out = 0, again = 0, behind_the_end = 0;
  for (const std::string& preset : virtual_run_test::kPresets)
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_config(preset, seed);
      const auto ledger = std::make_shared<WorkersLedger>();
      for (Rank rank = 0; rank < kRanks; ++rank) {
        auto& compute = config.computes[static_cast<std::size_t>(rank)];
        compute = std::make_shared<Numbering>(compute, rank, ledger);
      }
      config.evaluator = std::make_shared<Numbering>(config.evaluator, -1, ledger);
      const RunResult result = run_virtual(config, ledger);
      ASSERT_FALSE(result.error) << result.error->message;
      expect_all_accounted(result);
      const Uses uses = ledger->uses();
      EXPECT_GE(result.batches.left_out, unused(uses.most));
      EXPECT_LE(result.batches.left_out, unused(uses.least));
      EXPECT_GE(result.batches.again, used_again(uses.least));
      EXPECT_LE(result.batches.again, used_again(uses.most));
      expect_named(result.batches, uses);
      ++runs;
      exact += uses.least == uses.most;
      left_out += result.batches.left_out;
      again += result.batches.again;
      for (const auto& [batch, times] : uses.least) behind_the_end += batch >= kPlanned;
    }
  EXPECT_GT(exact, runs / 2) << "too little can be known from outside";
  EXPECT_GT(left_out, 2 * runs) << "little was left out: little was tested";
  EXPECT_GT(again, 0) << "no lost rank was ahead of the others";
  EXPECT_GT(behind_the_end, 0) << "no run used batches behind its last epoch";
}

}  // namespace batch_ledger_run_test
}  // namespace grapevine
