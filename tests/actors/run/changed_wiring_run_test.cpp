// The wiring changes in virtual time while the shipped actors train.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/changing_presets.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace changed_wiring_run_test {

using std::chrono::microseconds;
using virtual_run_test::changing_presets;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

struct Watcher : Quiet {
  void on_changed(const LiveSettings& settings) override { changes.push_back(settings); }
  void on_validation(Epoch epoch, const Evaluation& evaluation) override {
    Quiet::on_validation(epoch, evaluation);
    ++validated[epoch];
  }

  std::vector<LiveSettings> changes;
  std::map<Epoch, int> validated;
};

// As `train` makes them.
ChangeParts change_of(const Scenario& scenario) {
  return [scenario](const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
    Scenario changed = scenario;
    Wiring own;
    for (const auto& [name, value] : settings)
      if (name == kAlgorithmSetting)
        changed.preset = value;
      else if (name == "lr")
        changed.lr = std::stod(value);
      else if (auto set = own.set(name.substr(std::string("wiring.").size()), value); !set)
        return set.error();
    const auto preset = find_preset(changed.preset);
    if (!preset) return preset.error();
    const auto plan = resolve(on_top_of(preset->wiring, own));
    if (!plan) return plan.error();
    LrConfig rate;
    rate.lr = changed.lr;
    OptimizerConfig optimizer;
    optimizer.momentum = changed.momentum;
    return make_parts(*plan, {changed.steps, changed.steps_per_epoch}, *LrSchedule::make(rate),
                      optimizer, changed.ranks);
  };
}

RunConfig make_config(const Scenario& scenario, std::vector<ScheduledChange> schedule) {
  RunConfig config = make_run(scenario);
  config.change = change_of(scenario);
  config.schedule = std::move(schedule);
  return config;
}

Scenario make_scenario(const std::string& preset, std::uint64_t seed) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.seed = seed;
  scenario.steps = 40;
  scenario.momentum = preset == "topk" || seed % 2 == 0 ? 0 : 0.9;
  scenario.lr = 0.02;
  return scenario;
}

void expect_sound(const RunResult& result, std::int32_t ranks) {
  expect_all_accounted(result);
  EXPECT_NEAR(result.weight_sum, static_cast<double>(ranks), 1e-6);
}

double loss_of(const Quiet& observer, double from, double to) {
  double sum = 0;
  int count = 0;
  for (const StepReport& step : observer.steps)
    if (step.epochs_done > from && step.epochs_done <= to) {
      sum += step.loss;
      ++count;
    }
  return sum / std::max(1, count);
}

// Each preset gives way to another one and returns: each gradient is in a model or dropped by name,
// and the same run again has the same trace.
TEST(ChangedWiringRun, EveryPresetGivesWayAndReturns) {
  const std::vector<std::string> presets = changing_presets();
  ASSERT_EQ(presets, virtual_run_test::kPresets);
  for (std::size_t i = 0; i < presets.size(); ++i)
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const std::string& first = presets[i];
      const std::string& second = presets[(i + 4 * seed + 1) % presets.size()];
      SCOPED_TRACE(first + " -> " + second + ", seed=" + std::to_string(seed));
      Scenario scenario = make_scenario(first, seed);
      scenario.steps = 60;  // after 24 local steps and the grace of a quorum, which may take ten
      const auto once = [&](const std::shared_ptr<Watcher>& watcher) {
        return run_virtual(make_config(scenario, {{0.9, {{kAlgorithmSetting, second}}},
                                                  {2.3, {{kAlgorithmSetting, first}}}}),
                           watcher);
      };
      const auto watcher = std::make_shared<Watcher>();
      const RunResult result = once(watcher);
      ASSERT_FALSE(result.error) << result.error->message;
      expect_sound(result, 4);
      EXPECT_TRUE(watcher->warnings.empty()) << watcher->warnings.front();
      EXPECT_EQ(result.views, 5) << "two for each change";
      ASSERT_EQ(watcher->changes.size(), 2u);
      EXPECT_EQ(watcher->changes[0], (LiveSettings{{kAlgorithmSetting, second}}));
      EXPECT_LE(result.ledger.dropped, 2 * 4) << "at most the gradient that a sum was waiting for";
      EXPECT_EQ(watcher->validated,
                (std::map<Epoch, int>{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}));
      const RunResult again = once(std::make_shared<Watcher>());
      EXPECT_EQ(again.trace_hash, result.trace_hash);
      EXPECT_EQ(at::max((again.z.read() - result.z.read()).abs()).item<float>(), 0);
    }
}

// Where the ranks may not be others, in nodes and beside servers, numbers change as elsewhere.
TEST(ChangedWiringRun, NumbersChangeInNodesAndBesideServers) {
  for (const std::string& preset : virtual_run_test::kPresets)
    for (const std::string ranks_of_a_node : {"1", "2"}) {
      Scenario scenario = make_scenario(preset, 1);
      if (ranks_of_a_node != "1") scenario.set.emplace_back("hierarchy", ranks_of_a_node);
      RunConfig config = make_config(scenario, {{0.6, {{"lr", "0.003"}}}});
      const Plan& plan = config.parts->plan;
      if (!changes_members(plan) || changes_ranks(plan)) continue;
      SCOPED_TRACE(preset + ", ranks of a node: " + ranks_of_a_node);
      config.change = [parts = config.parts](const LiveSettings& settings) {
        LrConfig rate;
        rate.lr = settings.count("lr") > 0 ? std::stod(settings.at("lr")) : 0.02;
        return make_parts(parts->plan, parts->horizon, *LrSchedule::make(rate), parts->optimizer,
                          4);
      };
      const auto watcher = std::make_shared<Watcher>();
      const RunResult result = run_virtual(config, watcher);
      ASSERT_FALSE(result.error) << result.error->message;
      expect_sound(result, 4);
      EXPECT_EQ(result.views, 2);
      EXPECT_TRUE(watcher->warnings.empty()) << watcher->warnings.front();
      ASSERT_EQ(watcher->changes.size(), 1u);
      int before = 0, after = 0;
      for (const StepReport& step : watcher->steps) {
        before += step.lr == 0.02;
        after += step.lr == 0.003;
      }
      EXPECT_GT(before, 10);
      EXPECT_GT(after, 40);
    }
}

// The loss falls throughout, and the last preset leaves all ranks with the same model.
TEST(ChangedWiringRun, AChainOfPresetsTrainsOn) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Scenario scenario = make_scenario("ar", seed);
    scenario.steps = 70;
    scenario.momentum = 0;
    scenario.lr = 0.05;
    scenario.heterogeneity = 0;  // else the loss is that of ranks that disagree
    const auto watcher = std::make_shared<Watcher>();
    const RunResult result = run_virtual(
        make_config(scenario, {{1, {{kAlgorithmSetting, "sgp"}}},
                               {2, {{"wiring.topology", "ring"}}},
                               {3, {{kAlgorithmSetting, "gtopk"}, {"wiring.density", "0.2"}}},
                               {4, {{kAlgorithmSetting, "eager-majority"}, {"lr", "0.04"}}},
                               {5, {{kAlgorithmSetting, "ad-psgd"}}},
                               {6, {{kAlgorithmSetting, "ar"}}}}),
        watcher);
    ASSERT_FALSE(result.error) << result.error->message;
    expect_sound(result, 4);
    EXPECT_EQ(watcher->changes.size(), 6u);
    EXPECT_EQ(result.consensus_distance, 0);
    for (int epoch = 1; epoch <= 5; ++epoch)
      EXPECT_LT(loss_of(*watcher, epoch, epoch + 1), loss_of(*watcher, epoch - 1, epoch))
          << "epoch " << epoch;
  }
}

// The gradients that are computed when a change begins are in the step before it: none is computed
// twice, and no step takes much longer than its gradient.
TEST(ChangedWiringRun, NoGradientIsComputedTwice) {
  constexpr double kGradient = 0.02;  // of the slowest rank, seconds
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Scenario scenario = make_scenario("ar", seed);
    scenario.steps = 60;
    scenario.delay = "rank=0:20ms,rank=1:17ms,rank=2:20ms,rank=3:13ms";
    const auto watcher = std::make_shared<Watcher>();
    const RunResult result = run_virtual(make_config(scenario, {{1, {{kAlgorithmSetting, "sgp"}}},
                                                                {2, {{kAlgorithmSetting, "gtopk"}}},
                                                                {3, {{"lr", "0.03"}}},
                                                                {4, {{kAlgorithmSetting, "ar"}}}}),
                                         watcher);
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_EQ(watcher->changes.size(), 4u);
    for (const StepReport& step : watcher->steps)
      EXPECT_LT(step.batch_time_s, 1.5 * kGradient)
          << "rank " << step.rank << ", step " << step.step;
  }
}

// So do nodes and levels. All ranks end with one model, and the same run again has the same trace.
TEST(ChangedWiringRun, NodesAndLevelsComeAndGo) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Scenario scenario = make_scenario("ar", seed);
    scenario.steps = 90;
    scenario.momentum = 0;
    scenario.lr = 0.05;
    scenario.heterogeneity = 0;
    const LiveSettings groups = {{"wiring.level.1.ranks", "2"},
                                 {"wiring.level.1.exchange", "aggregate"}};
    LiveSettings gossip_of_groups = groups;
    gossip_of_groups[kAlgorithmSetting] = "sgp";
    LiveSettings gossip_of_nodes = {{kAlgorithmSetting, "osgp"}, {"wiring.hierarchy", "2"}};
    const auto once = [&](const std::shared_ptr<Watcher>& watcher) {
      return run_virtual(make_config(scenario, {{1, {{"wiring.hierarchy", "2"}}},
                                                {2, gossip_of_groups},
                                                {3, {{"wiring.topology", "ring"}}},
                                                {4, gossip_of_nodes},
                                                {5, {{kAlgorithmSetting, "gem"}}},
                                                {6, gossip_of_groups},
                                                {7, {{"lr", "0.04"}}},
                                                {8, {{kAlgorithmSetting, "ar"}}}}),
                         watcher);
    };
    const auto watcher = std::make_shared<Watcher>();
    const RunResult result = once(watcher);
    ASSERT_FALSE(result.error) << result.error->message;
    expect_sound(result, 4);
    EXPECT_EQ(watcher->changes.size(), 8u);
    EXPECT_TRUE(watcher->warnings.empty()) << watcher->warnings.front();
    EXPECT_EQ(result.consensus_distance, 0);
    EXPECT_LT(loss_of(*watcher, 7.5, 8.5), loss_of(*watcher, 0, 1));
    EXPECT_EQ(once(std::make_shared<Watcher>()).trace_hash, result.trace_hash);
  }
}

// A rank that returns began with the wiring of the start, and joins that of the members.
TEST(ChangedWiringRun, RanksReturnToLevelsThatCameLater) {
  std::int64_t returned = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Scenario scenario = make_scenario("ar", seed);
    scenario.steps = 60;
    scenario.momentum = 0.5;
    const LiveSettings groups = {{"wiring.level.1.ranks", "2"},
                                 {"wiring.level.1.exchange", "aggregate"}};
    RunConfig config = make_config(scenario, {{1, groups}});
    for (int i = 0; i < 3; ++i) {
      const auto rank = static_cast<Rank>((seed + i) % 4);
      const Duration death = microseconds(400'000 + 150'000 * i + 1'111 * seed);
      config.deaths.push_back({rank, death});
      config.returns.push_back({rank, death + microseconds(20'000 + 3'333 * seed)});
    }
    const auto watcher = std::make_shared<Watcher>();
    const RunResult result = run_virtual(config, watcher);
    ASSERT_FALSE(result.error) << result.error->message;
    expect_all_accounted(result);
    if (result.lost.empty()) {
      EXPECT_EQ(result.consensus_distance, 0);
    }
    EXPECT_EQ(watcher->changes.size(), 1u);
    returned += result.returned;
  }
  EXPECT_GT(returned, 16);
}

// Servers come and go: of one wiring and another, one and several. All ranks end with one model.
TEST(ChangedWiringRun, ServersComeAndGo) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Scenario scenario = make_scenario("ar", seed);
    scenario.steps = 100;  // ranks beside servers are not as far as each other
    scenario.momentum = 0;
    scenario.lr = 0.05;
    scenario.heterogeneity = 0;
    const auto once = [&](const std::shared_ptr<Watcher>& watcher) {
      return run_virtual(
          make_config(scenario, {{1, {{kAlgorithmSetting, "sgp"}}},
                                 {2, {{kAlgorithmSetting, "gtopk"}, {"wiring.density", "0.3"}}},
                                 {3, {{kAlgorithmSetting, "gem"}}},
                                 {4, {{kAlgorithmSetting, "downpour"}, {"wiring.servers", "3"}}},
                                 {5, {{kAlgorithmSetting, "easgd"}, {"wiring.servers", "2"}}},
                                 {6, {{kAlgorithmSetting, "gem"}}},
                                 {7, {{kAlgorithmSetting, "ar"}}}}),
          watcher);
    };
    const auto watcher = std::make_shared<Watcher>();
    const RunResult result = once(watcher);
    ASSERT_FALSE(result.error) << result.error->message;
    expect_sound(result, 4);
    EXPECT_TRUE(watcher->warnings.empty()) << watcher->warnings.front();
    EXPECT_EQ(watcher->changes.size(), 7u);
    EXPECT_EQ(result.consensus_distance, 0);
    for (Epoch epoch = 0; epoch < 10; ++epoch) EXPECT_EQ(watcher->validated[epoch], 1) << epoch;
    for (int epoch = 1; epoch <= 4; ++epoch)
      EXPECT_LT(loss_of(*watcher, epoch, epoch + 1), loss_of(*watcher, epoch - 1, epoch))
          << "epoch " << epoch;
    const RunResult again = once(std::make_shared<Watcher>());
    EXPECT_EQ(again.trace_hash, result.trace_hash);
    EXPECT_TRUE(at::equal(again.z.read(), result.z.read()));
  }
}

// Servers that come count from the clock of the ranks, and do not begin at 0: their epochs end when
// those of their clients do.
TEST(ChangedWiringRun, TheClockGoesOnBesideServers) {
  struct Clock : Watcher {
    void on_step(const StepReport& report) override {
      newest = std::max(newest, report.epochs_done);
    }
    void on_validation(Epoch epoch, const Evaluation&) override {
      behind[epoch] = newest - static_cast<double>(epoch + 1);
    }
    double newest = 0;
    std::map<Epoch, double> behind;
  };
  for (const std::string second : {"gem", "downpour", "easgd"}) {
    SCOPED_TRACE(second);
    Scenario scenario = make_scenario("ar", 3);
    scenario.steps = 80;
    const auto clock = std::make_shared<Clock>();
    const RunResult result =
        run_virtual(make_config(scenario, {{3, {{kAlgorithmSetting, second}}}}), clock);
    ASSERT_FALSE(result.error) << result.error->message;
    ASSERT_EQ(clock->behind.size(), 8u);
    for (const Epoch epoch : {3, 4, 5}) EXPECT_LT(clock->behind[epoch], 1.5) << "epoch " << epoch;
  }
}

// Ranks die around a change: before it, while members change, and while all take the mean.
TEST(ChangedWiringRun, RanksDieWhileTheWiringChanges) {
  const std::vector<std::string> presets = changing_presets();
  std::int64_t deaths = 0, changes = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const std::string& first = presets[seed % presets.size()];
    const std::string& second = presets[(seed * 5 + 2) % presets.size()];
    Scenario scenario = make_scenario(first, seed);
    scenario.ranks = 6;
    SCOPED_TRACE(first + " -> " + second + ", seed=" + std::to_string(seed));
    LiveSettings changed = {{kAlgorithmSetting, second}};
    if (resolve(find_preset(second)->wiring)->servers > 0)
      changed["wiring.servers"] = std::to_string(1 + seed % 3);
    RunConfig config = make_config(scenario, {{1, changed}});
    // Where the change comes without a death.
    const auto calm = std::make_shared<Watcher>();
    const RunResult undisturbed = run_virtual(config, calm);
    ASSERT_FALSE(undisturbed.error) << undisturbed.error->message;
    double moment = 0;
    for (const StepReport& step : calm->steps)
      if (step.epochs_done <= 1) moment = std::max(moment, step.time_s);
    Rng rng(seed);
    const auto around = static_cast<std::int64_t>(moment * 1e6);
    config = make_config(scenario, {{1, changed}});
    for (const Rank dead : {static_cast<Rank>(seed % 6), static_cast<Rank>((seed + 3) % 6)})
      config.deaths.push_back(
          {dead, microseconds(std::max<std::int64_t>(
                     1, around - 5'000 + static_cast<std::int64_t>(rng() % 30'000)))});
    const auto watcher = std::make_shared<Watcher>();
    const RunResult result = run_virtual(config, watcher);
    ASSERT_FALSE(result.error) << result.error->message;
    expect_sound(result, 6 - static_cast<std::int32_t>(result.lost.size()));
    deaths += static_cast<std::int64_t>(result.lost.size());
    changes += static_cast<std::int64_t>(watcher->changes.size());
  }
  EXPECT_GT(deaths, 100);
  EXPECT_GT(changes, 40);
}

// A rank, or the wiring itself, refuses: the run goes on as if nobody had asked.
TEST(ChangedWiringRun, ARefusedChangeLeavesTheRunAsItWas) {
  for (const std::string preset : {"ar", "sgp", "ad-psgd", "gtopk"}) {
    SCOPED_TRACE(preset);
    const Scenario scenario = make_scenario(preset, 2);
    const RunResult expected = run_virtual(make_config(scenario, {}), std::make_shared<Watcher>());
    for (const LiveSettings& wrong :
         {LiveSettings{{kAlgorithmSetting, "gem"}, {"wiring.servers", "4"}},
          LiveSettings{{kAlgorithmSetting, "nonsense"}}, LiveSettings{{"wiring.local_steps", "0"}},
          LiveSettings{{"lr", "0.5"}}}) {
      RunConfig config = make_config(scenario, {{1, wrong}});
      // The head agrees to the last one, and the third rank that is asked does not.
      if (wrong.count("lr") > 0) {
        config.schedule = {{1, {{kAlgorithmSetting, "local-sgd"}}}};
        config.change =
            [inner = config.change, calls = std::make_shared<int>(0)](
                const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
          if (++*calls == 4) return bad_input("no room for another role");
          return inner(settings);
        };
      }
      const auto watcher = std::make_shared<Watcher>();
      const RunResult result = run_virtual(config, watcher);
      ASSERT_FALSE(result.error) << result.error->message;
      EXPECT_EQ(watcher->warnings.size(), 1u);
      EXPECT_TRUE(watcher->changes.empty());
      EXPECT_EQ(result.views, 1);
      EXPECT_EQ(at::max((expected.z.read() - result.z.read()).abs()).item<float>(), 0);
      EXPECT_EQ(expected.ledger.produced, result.ledger.produced);
    }
  }
}

// A rank dies and returns after a change: it takes the model as the new wiring does, with a part of
// the mass or with a copy.
TEST(ChangedWiringRun, ARankReturnsToTheNewWiring) {
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{{"ar", "sgp"},
                                                        {"sgp", "ar"},
                                                        {"osgp", "gtopk"},
                                                        {"gtopk", "osgp"},
                                                        {"ar", "gem"},
                                                        {"easgd", "sgp"},
                                                        {"downpour", "gem"}}) {
    SCOPED_TRACE(first + " -> " + second);
    Scenario scenario = make_scenario(first, 5);
    scenario.steps = 80;
    RunConfig config = make_config(scenario, {{1, {{kAlgorithmSetting, second}}}});
    config.deaths = {{2, std::chrono::milliseconds(700)}};
    config.returns = {{2, std::chrono::milliseconds(800)}};
    const auto watcher = std::make_shared<Watcher>();
    const RunResult result = run_virtual(config, watcher);
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_EQ(watcher->changes.size(), 1u);
    EXPECT_EQ(result.returned, 1);
    expect_sound(result, 4);
  }
}

// Two changes follow one another, and at each moment around them a rank joins: it has a role of the
// members' wiring, whichever of the three that is, and begins with what they have.
TEST(ChangedWiringRun, ARankJoinsAmidSuccessiveChanges) {
  std::int64_t returned = 0, amid = 0;
  for (const auto& [first, second, third] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"ar", "sgp", "gtopk"}, {"sgp", "gem", "ar"}, {"gtopk", "ad-psgd", "sgp"}})
    for (int at = 0; at < 24; ++at) {
      Scenario scenario = make_scenario(first, 3);
      scenario.steps = 60;
      RunConfig config = make_config(
          scenario, {{1, {{kAlgorithmSetting, second}}}, {1.2, {{kAlgorithmSetting, third}}}});
      const auto watcher = std::make_shared<Watcher>();
      if (at == 0) {  // when the changes take place
        const RunResult alone = run_virtual(config, watcher);
        ASSERT_FALSE(alone.error) << alone.error->message;
        ASSERT_EQ(watcher->changes.size(), 2u);
        continue;
      }
      const Duration death = microseconds(150'000 + 3'000 * at);
      config.deaths = {{2, death}};
      config.returns = {{2, death + microseconds(10'000 + 12'345 * at)}};
      SCOPED_TRACE(first + " -> " + second + " -> " + third + ", moment " + std::to_string(at));
      const RunResult result = run_virtual(config, watcher);
      ASSERT_FALSE(result.error) << result.error->message;
      returned += result.returned;
      expect_sound(result, 4 - static_cast<std::int32_t>(result.lost.size()));
      ASSERT_EQ(watcher->changes.size(), 2u);
      EXPECT_EQ(watcher->changes[1], (LiveSettings{{kAlgorithmSetting, third}}));
      amid += result.views > 4 ? 1 : 0;
    }
  EXPECT_GT(returned, 50);
  EXPECT_GT(amid, 50);
}

// A change that is refused while all ranks take their last step does not hold up the end.
TEST(ChangedWiringRun, ARefusalDoesNotHoldUpTheEnd) {
  for (double epoch = 3.5; epoch < 4; epoch += 0.05) {
    SCOPED_TRACE("epoch=" + std::to_string(epoch));
    RunConfig config = make_config(make_scenario("ar", 2), {{epoch, {{kAlgorithmSetting, "sgp"}}}});
    config.change =
        [inner = config.change, calls = std::make_shared<int>(0)](
            const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
      if (++*calls > 1) return bad_input("no room for another role");
      return inner(settings);
    };
    const RunResult result = run_virtual(config, std::make_shared<Watcher>());
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_LT(result.seconds, 60) << "of virtual time";
  }
}

// A checkpoint after a change is one of the new wiring: a run that continues it ends in the same
// bits, where ranks wait for each other.
TEST(ChangedWiringRun, IsContinuedFromACheckpoint) {
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{{"ar", "sgp"},
                                                        {"sgp", "ar"},
                                                        {"sgp", "gtopk"},
                                                        {"gtopk", "local-sgd"},
                                                        {"ar", "gem"},
                                                        {"gem", "ar"},
                                                        {"downpour", "easgd"}}) {
    const auto& synchronous = virtual_run_test::kSynchronous;
    const bool alike =
        std::find(synchronous.begin(), synchronous.end(), second) != synchronous.end();
    SCOPED_TRACE(first + " -> " + second);
    Scenario scenario = make_scenario(first, 3);
    scenario.folder = fresh_folder("changed-wiring");
    const auto watcher = std::make_shared<Watcher>();
    const RunResult whole =
        run_virtual(make_config(scenario, {{1.5, {{kAlgorithmSetting, second}}}}), watcher);
    ASSERT_FALSE(whole.error) << whole.error->message;
    ASSERT_EQ(watcher->changes.size(), 1u);
    const auto third = std::find_if(
        watcher->checkpoints.begin(), watcher->checkpoints.end(),
        [](const std::string& path) { return path.find("epoch-0003") != std::string::npos; });
    ASSERT_NE(third, watcher->checkpoints.end());
    Scenario again = scenario;
    again.preset = second;
    again.folder = fresh_folder("changed-wiring-again");
    RunConfig config = make_config(again, {});
    const auto checkpoint = read_checkpoint(*third);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    config.resume = *checkpoint;
    const RunResult result = run_virtual(config, std::make_shared<Watcher>());
    ASSERT_FALSE(result.error) << result.error->message;
    expect_sound(result, 4);
    EXPECT_EQ(whole.steps, result.steps);
    if (!alike) continue;  // its result depends on time
    EXPECT_EQ(at::max((whole.z.read() - result.z.read()).abs()).item<float>(), 0);
    EXPECT_EQ(whole.ledger.committed, result.ledger.committed);
    EXPECT_EQ(whole.ledger.staleness, result.ledger.staleness) << "that of servers, too";
  }
}

}  // namespace changed_wiring_run_test
}  // namespace grapevine
