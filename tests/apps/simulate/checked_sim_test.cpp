// The campaign of the ordinary tests: every preset, with seeded faults, each seed twice.
#include "apps/simulate/checked_sim.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "algorithms/roles/aggregate/aggregate.hpp"
#include "algorithms/roles/gossip/gossip.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace checked_sim_test {

SimOptions small(const std::string& preset, std::int64_t seed) {
  SimOptions options;
  options.train.algorithm = preset;
  options.train.workers = 4;
  options.train.steps = 12;
  options.train.lr = 0.05;
  options.train.seed = seed;
  options.maths = "quadratic";
  options.parameters = 48;
  options.network = "alpha=1e-3,beta=1e-6,jitter=1e-3";
  options.compute = "lognormal=-4:0.5";
  return options;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets())
    if (preset.name != kCustomWiring) names.push_back(preset.name);
  return names;
}

class EveryPreset : public testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, KeepsItsPromisesThroughSeededFaultsAndIsDeterministic) {
  for (std::int64_t seed = 1; seed <= 6; ++seed) {
    SimOptions options = small(GetParam(), seed);
    options.fail = seed == 1 ? "" : "random=4";
    const auto first = run_checked(options);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_TRUE(first->violations.empty())
        << "seed " << seed << ", --fail " << first->faults << "\n"
        << fmt::format("{}", fmt::join(first->violations, "\n"));
    const auto second = run_checked(options);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(first->trace_hash, second->trace_hash) << "seed " << seed;
    EXPECT_EQ(first->events, second->events) << "seed " << seed;
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Simulated, EveryPreset, testing::ValuesIn(preset_names()), test_name);

// Each preset gives way to another one and returns, while ranks are lost, return and stall.
TEST_P(EveryPreset, KeepsItsPromisesWhileTheWiringChanges) {
  const std::vector<std::string> all = preset_names();
  const auto own = std::find(all.begin(), all.end(), GetParam()) - all.begin();
  const TemporaryDirectory folder;
  for (std::int64_t seed = 1; seed <= 4; ++seed) {
    const std::string& other = all[static_cast<std::size_t>(own + 1 + 5 * seed) % all.size()];
    const std::string path = (folder.path() / "changes.toml").string();
    // Of the last one, servers that come have few commits before they go.
    const double first_at = seed < 4 ? 0.03 : 0.1, second_at = seed < 4 ? 0.09 : 0.106;
    std::ofstream(path) << "[[change]]\nepoch = " << first_at << "\nalgorithm = '" << other
                        << "'\n[[change]]\nepoch = " << second_at << "\nalgorithm = '" << GetParam()
                        << "'\n";
    SimOptions options = small(GetParam(), seed);
    options.train.steps = 50;
    options.train.schedule = path;
    options.fail = seed == 1 ? "" : "random=4";
    const auto first = run_checked(options);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_TRUE(first->violations.empty())
        << other << ", seed " << seed << ", --fail " << first->faults << "\n"
        << fmt::format("{}", fmt::join(first->violations, "\n"));
    const auto second = run_checked(options);
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(first->trace_hash, second->trace_hash) << "seed " << seed;
  }
}

TEST(CheckedSim, SeedsAndFaultsChangeTheHash) {
  const auto hash = [](std::int64_t seed, const std::string& fail) {
    SimOptions options = small("sgp", seed);
    options.fail = fail;
    return run_checked(options)->trace_hash;
  };
  EXPECT_NE(hash(1, ""), hash(2, ""));
  EXPECT_NE(hash(1, ""), hash(1, "pause=1@20ms+50ms"));
}

// Messages between ranks and supervisor that take a while meet other states of the ranks.
TEST_P(EveryPreset, KeepsItsPromisesWhereTheControlPlaneIsSlow) {
  for (std::int64_t seed = 1; seed <= 3; ++seed) {
    SimOptions options = small(GetParam(), seed);
    options.network += ",control=3e-3";
    options.fail = "random=4";
    const auto outcome = run_checked(options);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    EXPECT_TRUE(outcome->violations.empty())
        << "seed " << seed << ", --fail " << outcome->faults << "\n"
        << fmt::format("{}", fmt::join(outcome->violations, "\n"));
  }
}

TEST(CheckedSim, ASlowControlPlaneDelaysAChangeOfMembers) {
  const auto seconds = [](const std::string& control) {
    SimOptions options = small("ar", 1);
    options.network += control;
    options.fail = "crash=2@50ms";
    return run_checked(options)->virtual_seconds;
  };
  EXPECT_GT(seconds(",control=0.1"), seconds("") + 0.4);
}

// A rank that has ended had folded a share whose giver got nothing in return: their weights were
// not 1, and the joiner took over its donor's.
TEST(CheckedSim, ARankThatReturnsWeighsOneWhereWeightsCarryNoMass) {
  SimOptions options = small("d-psgd", 273);
  options.train.workers = 6;
  options.train.steps = 24;
  options.parameters = 96;
  options.fail =
      "pause=4@114754us+99692us,crash=0@448268us,pause=4@462685us+94296us,restart=0@487842us,"
      "slow=1-3x6@275845us+5913us,partition=4-3@412822us+42219us";
  const auto outcome = run_checked(options);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_TRUE(outcome->violations.empty())
      << fmt::format("{}", fmt::join(outcome->violations, "\n"));
}

// A restart that waits for a place when the run is given up had kept the process for ever.
TEST(CheckedSim, ARunThatIsGivenUpEndsWithItsRestartsOpen) {
  SimOptions options = small("ar", 1);
  options.fail = "crash=2@50ms,restart=2@60ms,partition=0-1@40ms+1000";
  options.deadline_s = 1;
  const auto outcome = run_checked(options);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_FALSE(outcome->violations.empty());
  EXPECT_NE(outcome->violations.front().find("deadline"), std::string::npos)
      << outcome->violations.front();
}

// What is checked of a run with plain descent, with another role in the place of its own unless
// that is null.
CheckedRun checked(const std::string& preset, const std::string& set = "",
                   const RoleType* role = nullptr) {
  SimOptions options = small(preset, 1);
  options.train.momentum = 0;
  if (!set.empty()) options.train.set = {set};
  options.writes = false;
  auto made = make_sim_job(options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  auto parts = std::make_shared<SharedParts>(*made->job.made_parts);
  if (role != nullptr) parts->plan.role = role;
  made->job.made_parts = parts;
  return checked_run(made->job);
}

TEST(CheckedSim, TheEntryOfARoleSaysHowGradientsEnterTheModels) {
  EXPECT_EQ(checked("ar").gradient_sums, GradientSums::means);
  for (const char* preset : {"sgp", "osgp", "d-psgd", "ad-psgd", "eager-solo", "eager-quorum"})
    EXPECT_EQ(checked(preset).gradient_sums, GradientSums::sums) << preset;
  for (const char* preset : {"topk", "choco-sgd", "gradient-tracking", "wagma", "gem", "local-sgd"})
    EXPECT_EQ(checked(preset).gradient_sums, GradientSums::unknown) << preset;
  for (const char* set : {"wiring.averaging=biased", "wiring.local_steps=2", "wiring.hierarchy=2"})
    EXPECT_EQ(checked("sgp", set).gradient_sums, GradientSums::unknown) << set;
  EXPECT_EQ(checked("ar", "wiring.overlap=true").gradient_sums, GradientSums::unknown);
  EXPECT_EQ(checked("osgp", "wiring.running_sums=true").gradient_sums, GradientSums::unknown);
  EXPECT_EQ(checked("eager-solo", "wiring.scale=active").gradient_sums, GradientSums::unknown);
}

TEST(CheckedSim, TheEntryOfARoleSaysWhatItsMessagesCarry) {
  for (const char* preset : {"sgp", "osgp", "d-psgd", "gradient-tracking"}) {
    EXPECT_TRUE(checked(preset).gives_weight) << preset;
    EXPECT_FALSE(checked(preset).gives_sums) << preset;
  }
  for (const char* preset : {"ar", "choco-sgd", "ad-psgd", "eager-solo", "gem"})
    EXPECT_FALSE(checked(preset).gives_weight) << preset;
  EXPECT_FALSE(checked("sgp", "wiring.averaging=biased").gives_weight);
  EXPECT_FALSE(checked("osgp", "wiring.running_sums=true").gives_weight);
  EXPECT_TRUE(checked("osgp", "wiring.running_sums=true").gives_sums);
  EXPECT_TRUE(checked("topk").feeds_back);
  for (const char* preset : {"ar", "gtopk", "sparseloco", "choco-sgd"})
    EXPECT_FALSE(checked(preset).feeds_back) << preset;
}

TEST(CheckedSim, TheEntryOfARoleBoundsItsStaleness) {
  for (const char* preset : {"ar", "sgp", "topk", "choco-sgd"})
    EXPECT_EQ(checked(preset).most_staleness, 0) << preset;
  EXPECT_EQ(checked("osgp").most_staleness, 1);
  EXPECT_EQ(checked("ar", "wiring.overlap=true").most_staleness, 1);
  for (const char* preset : {"d-psgd", "ad-psgd", "eager-solo", "wagma", "gem", "local-sgd"})
    EXPECT_EQ(checked(preset).most_staleness, -1) << preset;
  EXPECT_EQ(checked("osgp", "wiring.staleness=2").most_staleness, -1);
  EXPECT_EQ(checked("osgp", "wiring.running_sums=true").most_staleness, -1);
}

// The name of a role says nothing: a role from outside is checked for what its own entry promises.
TEST(CheckedSim, ARoleFromOutsidePromisesNothingUnlessItsEntryDoes) {
  RoleType silent;
  silent.name = "gossip";
  silent.read = gossip_role().read;
  silent.make = gossip_role().make;
  for (const char* preset : {"sgp", "osgp"}) {
    const CheckedRun run = checked(preset, "", &silent);
    EXPECT_EQ(run.gradient_sums, GradientSums::unknown);
    EXPECT_FALSE(run.gives_weight || run.gives_sums || run.feeds_back || run.ranks_agree);
    EXPECT_EQ(run.most_staleness, -1);
  }
  RoleType summed = aggregate_role();
  summed.name = "mine";
  EXPECT_EQ(checked("ar", "", &summed).gradient_sums, GradientSums::means);
  EXPECT_TRUE(checked("topk", "", &summed).feeds_back);
  RoleType renamed = gossip_role();
  renamed.name = "mine";
  const CheckedRun run = checked("osgp", "", &renamed);
  EXPECT_EQ(run.gradient_sums, GradientSums::sums);
  EXPECT_TRUE(run.gives_weight);
  EXPECT_EQ(run.most_staleness, 1);
}

SimOptions six_workers(const std::string& preset, std::int64_t seed) {
  SimOptions options = small(preset, seed);
  options.train.workers = 6;
  options.train.steps = 24;
  options.parameters = 96;
  return options;
}

void expect_kept(const SimOptions& options, const std::string& what) {
  const auto outcome = run_checked(options);
  ASSERT_TRUE(outcome.ok()) << what << ": " << outcome.error().message;
  EXPECT_TRUE(outcome->violations.empty())
      << what << ", seed " << options.train.seed << ", --fail " << outcome->faults << "\n"
      << fmt::format("{}", fmt::join(outcome->violations, "\n"));
}

// Exchanges inside a node and between nodes number their operations alike.
TEST(CheckedSim, NestedExchangesKeepTheirPromises) {
  for (const char* preset : {"ar", "local-sgd", "eager-majority", "wagma"}) {
    SimOptions options = six_workers(preset, 1);
    options.train.workers = 8;
    options.train.set = {"wiring.hierarchy=2"};
    expect_kept(options, preset);
  }
  const auto levels = Wiring::parse_toml(
      "[[wiring.level]]\nranks = 2\nexchange = 'aggregate'\n"
      "[[wiring.level]]\nranks = 4\nexchange = 'aggregate'\npack = 'model'\nlocal_steps = 2\n"
      "[[wiring.level]]\nexchange = 'aggregate'\npack = 'model'\nlocal_steps = 4\n",
      "levels");
  ASSERT_TRUE(levels.ok()) << levels.error().message;
  SimOptions options = six_workers(kCustomWiring, 1);
  options.train.workers = 8;
  options.train.wiring = *levels;
  expect_kept(options, "three levels");
}

// What a last message that was lost owes is known.
TEST(CheckedSim, LostMessagesOfRunningSumsLoseNoMass) {
  for (std::int64_t seed = 1; seed <= 20; ++seed) {
    SimOptions options = six_workers("osgp", seed);
    options.train.momentum = 0;
    options.train.set = {"wiring.running_sums=true"};
    options.network += ",loss=0.3";
    expect_kept(options, "loss");
  }
}

// A server that stands still keeps messages while ranks are lost and return.
TEST(CheckedSim, AStalledServerDropsTheMessagesOfAnEarlierLife) {
  for (std::int64_t seed = 1; seed <= 25; ++seed) {
    SimOptions options = six_workers("gem", seed);
    options.train.delay = "stall=server:6@3:300ms";
    options.fail = "random=6";
    expect_kept(options, "stall");
  }
}

std::uint64_t bytes_sent(SimOptions options, const std::string& maths) {
  options.maths = maths;
  options.writes = false;
  auto made = make_sim_job(options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  const SimOutcome outcome = run_sim(std::move(made->job.run), std::make_shared<UnseenRun>());
  EXPECT_FALSE(outcome.result.error);
  return outcome.result.ledger.bytes_sent;
}

TEST(CheckedSim, WithoutMathsTheBytesAreThoseOfTheWholeModel) {
  for (const char* preset : {"sgp", "ar", "topk", "gtopk", "ad-psgd", "gem", "eager-solo",
                             "eager-majority", "eager-quorum", "wagma", "decoupled-diloco"}) {
    SimOptions options = small(preset, 1);
    options.train.workers = 8;
    options.train.steps = 24;
    options.parameters = 100'000;
    const auto whole = static_cast<double>(bytes_sent(options, "quadratic"));
    EXPECT_NEAR(static_cast<double>(bytes_sent(options, "none")) / whole, 1, 0.02) << preset;
  }
}

}  // namespace checked_sim_test
}  // namespace grapevine
