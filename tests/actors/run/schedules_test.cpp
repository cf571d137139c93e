// Changes of members under every order of messages that differs from the usual one in few places.
//
// One thread runs the shipped actors. Where several of them have a message, the one that has waited
// longest goes first: that is the usual order. Here each run deviates from it in one or two places
// after the first loss, in all possible ways (Emmi, Qadeer & Rakamaric 2011, delay-bounded
// scheduling): in one place anywhere until the end of the run, in two within the first 40 choices.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace schedules_test {

using std::chrono::milliseconds;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

// At a choice, counted from the first loss on, an actor other than the first one goes on.
struct Deviation {
  std::size_t choice = 0;
  std::size_t actor = 0;
};
using Deviations = std::vector<Deviation>;

std::string text_of(const Deviations& deviations) {
  std::string text = "deviations:";
  for (const Deviation& one : deviations)
    text += " " + std::to_string(one.choice) + "->" + std::to_string(one.actor);
  return text;
}

// Ranks that die during training, at a moment at which messages are on their way.
struct Change {
  std::string preset;
  std::vector<Death> deaths;
  std::vector<Return> returns;
  std::int32_t ranks = 3;
};

RunConfig run_of(const Change& change) {
  Scenario scenario;
  scenario.preset = change.preset;
  if (change.preset == "ar") scenario.set = {{"all_reduce", "ring"}};  // of many messages
  scenario.ranks = change.ranks;
  scenario.dimension = 4;
  scenario.steps = 5;
  scenario.steps_per_epoch = 5;
  scenario.delay = "lognormal=-4.6:0";  // 10 ms each: all ranks have messages at the same moment
  RunConfig config = make_run(scenario);
  config.min_workers = 1;
  config.deaths = change.deaths;
  config.returns = change.returns;
  return config;
}

class Explorer {
 public:
  // `window`: choices after the first loss in which runs deviate.
  Explorer(Change change, std::size_t window) : change_(std::move(change)), window_(window) {}

  // All schedules with at most `most` deviations. Returns their number.
  std::size_t explore(std::size_t most) {
    explore({}, most);
    return runs_;
  }
  std::size_t choices() const { return choices_; }

 private:
  // Every schedule once: a further deviation comes after the last one.
  void explore(const Deviations& deviations, std::size_t more) {
    const std::vector<std::size_t> ready = run(deviations);
    if (testing::Test::HasFailure() || more == 0) return;
    const std::size_t first = deviations.empty() ? 0 : deviations.back().choice + 1;
    for (std::size_t choice = first; choice < ready.size(); ++choice)
      for (std::size_t actor = 1; actor < ready[choice]; ++actor) {
        Deviations longer = deviations;
        longer.push_back({choice, actor});
        explore(longer, more - 1);
        if (testing::Test::HasFailure()) return;
      }
  }

  // How many actors were ready at each choice of the window.
  std::vector<std::size_t> run(const Deviations& deviations) {
    SCOPED_TRACE(change_.preset + ", " + text_of(deviations));
    ++runs_;
    std::vector<std::size_t> ready;
    auto next = deviations.begin();
    RunConfig config = run_of(change_);
    config.world = std::make_shared<VirtualWorld>();
    config.world->next_actor = [&, world = config.world.get()](std::size_t actors) {
      if (world->now < change_.deaths.front().at || ready.size() == window_) return std::size_t{0};
      ready.push_back(actors);
      if (next == deviations.end() || next->choice + 1 != ready.size()) return std::size_t{0};
      return std::min((next++)->actor, actors - 1);
    };
    check(run_virtual(config, std::make_shared<Quiet>()));
    choices_ = std::max(choices_, ready.size());
    return ready;
  }

  void check(const RunResult& result) const {
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_EQ(result.ledger.produced,
              result.ledger.committed + result.ledger.dropped + result.destroyed);
    EXPECT_EQ(result.ledger.sent, result.ledger.received);
    EXPECT_EQ(result.returned, static_cast<std::int64_t>(change_.returns.size()));
    EXPECT_EQ(result.lost.size(), change_.deaths.size() - change_.returns.size());
    EXPECT_NEAR(result.weight_sum, change_.ranks - static_cast<double>(result.lost.size()), 1e-9);
    EXPECT_TRUE(at::isfinite(result.z.read()).all().item<bool>());
    const bool replicated = change_.preset == "ar" || change_.preset == "eager-majority";
    if (replicated) {
      EXPECT_EQ(result.consensus_distance, 0) << "the ranks do not have one model";
    }
  }

  const Change change_;
  const std::size_t window_;
  std::size_t runs_ = 0, choices_ = 0;
};

// More choices than a run has.
constexpr std::size_t kWhole = 2000;

// The presets of the four kinds of exchange.
const std::vector<std::string> kExchanges = {"ar", "sgp", "ad-psgd", "eager-majority"};

TEST(Schedules, ALossIsSurvivedUnderEveryOrderWithOneDeviation) {
  std::size_t runs = 0;
  for (const std::string& preset : kExchanges)
    for (int at = 15; at <= 35; at += 2) {  // also just when gradients are computed
      Explorer explorer({preset, {{2, milliseconds(at)}}, {}, 3}, kWhole);
      runs += explorer.explore(1);
      ASSERT_FALSE(HasFailure());
      EXPECT_GT(explorer.choices(), 20U) << "little was tested";
      EXPECT_LT(explorer.choices(), kWhole) << "the run is longer than the window";
    }
  EXPECT_GT(runs, 1000U);
}

TEST(Schedules, ALossIsSurvivedUnderEveryOrderWithTwoDeviationsInTheChange) {
  for (const std::string& preset : kExchanges) {
    Explorer explorer({preset, {{1, milliseconds(20)}}, {}, 3}, 40);
    EXPECT_GT(explorer.explore(2), 300U);
    ASSERT_FALSE(HasFailure());
  }
}

// A second rank is lost, or the first one returns, while the members change.
TEST(Schedules, ChangesThatMeetAreSurvivedUnderEveryOrderWithOneDeviation) {
  for (const std::string& preset : kExchanges) {
    Explorer two({preset, {{1, milliseconds(20)}, {2, milliseconds(20)}}, {}, 4}, kWhole);
    EXPECT_GT(two.explore(1), 50U);
    ASSERT_FALSE(HasFailure());
    Explorer back({preset, {{1, milliseconds(20)}}, {{1, milliseconds(20)}}, 3}, kWhole);
    EXPECT_GT(back.explore(1), 50U);
    ASSERT_FALSE(HasFailure());
    EXPECT_LT(std::max(two.choices(), back.choices()), kWhole);
  }
}

}  // namespace schedules_test
}  // namespace grapevine
