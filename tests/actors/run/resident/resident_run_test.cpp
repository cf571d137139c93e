// Whole runs whose ranks keep their models on devices, in virtual time: the results are the bits of
// the same runs in the host's memory, and no stream misses a wait.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "tests/actors/run/resident/resident_scenario.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace resident_run_test {

using resident::make_resident;
using resident::put_on_devices;
using resident::run_well;
using resident::traffic_of_step;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using virtual_run_test::fresh_folder;
using virtual_run_test::kPresets;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

std::shared_ptr<const SharedParts> parts_of(const Scenario& scenario, const Plan& plan,
                                            const OptimizerConfig& optimizer) {
  LrConfig rate;
  rate.lr = scenario.lr;
  return *make_parts(plan, {scenario.steps, scenario.steps_per_epoch}, *LrSchedule::make(rate),
                     optimizer, scenario.ranks);
}

struct Watcher : Quiet {
  void on_changed(const LiveSettings& settings) override { changes.push_back(settings); }

  std::vector<LiveSettings> changes;
};

// The algorithm becomes ar after an epoch, with `role` in the place of its own unless that is null.
RunConfig make_changing(const Scenario& scenario, const RoleType* role = nullptr) {
  RunConfig run = make_run(scenario);
  run.change = [scenario, role](
                   const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
    const auto named = settings.find(kAlgorithmSetting);
    Plan plan =
        *resolve(find_preset(named == settings.end() ? scenario.preset : named->second)->wiring);
    if (role != nullptr && named != settings.end()) plan.role = role;
    OptimizerConfig optimizer;
    optimizer.momentum = scenario.momentum;
    return parts_of(scenario, plan, optimizer);
  };
  run.schedule = {{1, {{kAlgorithmSetting, "ar"}}}};
  return run;
}

void expect_same(const RunResult& here, const RunResult& host) {
  ASSERT_TRUE(here.z.defined() && host.z.defined());
  EXPECT_TRUE(at::equal(here.z.read(), host.z.read()));
  EXPECT_EQ(here.trace_hash, host.trace_hash);
  EXPECT_EQ(here.weight_sum, host.weight_sum);
  EXPECT_EQ(here.consensus_distance, host.consensus_distance);
  EXPECT_EQ(here.ledger.committed, host.ledger.committed);
}

class ResidentRun : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  static void expect_host_bits(const std::function<RunConfig()>& make) {
    const RunResult host = run_well(make());
    for (const int devices : {1, 2}) {
      SCOPED_TRACE(std::to_string(devices) + " devices");
      fake::reset();
      expect_same(run_well(make_resident(make(), devices)), host);
      EXPECT_THAT(fake::violations(), IsEmpty());
    }
  }
  static void expect_host_bits(const Scenario& scenario) {
    expect_host_bits([&scenario] { return make_run(scenario); });
  }
};

TEST_F(ResidentRun, EveryPresetHasTheBitsOfTheHost) {
  for (const std::string& preset : kPresets) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.noise = 0.1;
    scenario.dimension = 3000;  // above what kernels do without ATen, and above a block of int8
    if (preset == "diloco" || preset == "slowmo" || preset == "noloco" ||
        preset == "decoupled-diloco")
      scenario.set = {{"local_steps", "4"}};
    expect_host_bits(scenario);
  }
}

TEST_F(ResidentRun, OtherPartsHaveTheBitsOfTheHost) {
  const std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>>
      wirings = {{"osgp", {{"running_sums", "true"}}},
                 {"sgp", {{"hierarchy", "2"}}},
                 {"osgp", {{"staleness", "2"}, {"clip", "1"}}},
                 {"ar", {{"compress", "int8"}}},
                 {"ar", {{"compress", "fp16"}}},
                 {"ar", {{"compress", "top-k"}, {"density", "0.1"}}},
                 {"ar", {{"compress", "top-k"}, {"density", "0.1"}, {"value_type", "f16"}}},
                 {"d-psgd", {{"compress", "int8"}}},
                 {"downpour", {{"compress", "bf16"}}},
                 {"ar", {{"all_reduce", "direct"}, {"clip", "1"}}},
                 {"d-psgd", {{"compress", "sign"}}},
                 {"ad-psgd", {{"compress", "top-k"}, {"density", "0.1"}}},
                 {"eager-solo", {{"compress", "top-k"}, {"density", "0.1"}}},
                 {"downpour", {{"servers", "2"}}},
                 {"easgd", {{"synchronous", "true"}}},
                 {"gem", {{"servers", "2"}}}};
  for (const auto& [preset, set] : wirings) {
    SCOPED_TRACE(preset + ", " + set.front().first + " = " + set.front().second);
    Scenario scenario;
    scenario.preset = preset;
    scenario.set = set;
    scenario.dimension = 1500;
    scenario.momentum = preset == "downpour" ? 0 : 0.9;
    expect_host_bits(scenario);
  }
}

TEST_F(ResidentRun, ModelOfLibTorchHasTheBitsOfTheHost) {
  const auto make = [](int devices) {
    Scenario scenario;
    scenario.preset = "osgp";
    scenario.momentum = 0.9;
    RunConfig run = make_run(scenario);
    for (Rank rank = 0; rank < run.workers(); ++rank) {
      TorchComputeConfig config = tiny_config(tiny_layers, rank, run.workers());
      if (devices > 0)
        config.runtime =
            fake::open_device(rank % devices, "the worker of rank " + std::to_string(rank));
      run.computes[static_cast<std::size_t>(rank)] = make_tiny(std::move(config));
    }
    run.evaluator = make_tiny(tiny_config(tiny_layers));
    if (devices > 0) put_on_devices(run, devices);
    return run;
  };
  const RunResult host = run_well(make(0));
  for (const int devices : {1, 2}) {
    fake::reset();
    const RunResult here = run_well(make(devices));
    expect_same(here, host);
    EXPECT_TRUE(at::equal(here.buffers.read(), host.buffers.read()));
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
}

TEST_F(ResidentRun, AdamHasTheBitsOfTheHost) {
  for (const std::string preset : {"ar", "osgp"}) {
    SCOPED_TRACE(preset);
    expect_host_bits([&preset] {
      Scenario scenario;
      scenario.preset = preset;
      scenario.dimension = 1500;
      RunConfig run = make_run(scenario);
      OptimizerConfig adam;
      adam.name = "adam";
      run.parts = parts_of(scenario, run.parts->plan, adam);
      return run;
    });
  }
}

TEST_F(ResidentRun, LevelsHaveTheBitsOfTheHost) {
  expect_host_bits([] {
    Scenario scenario;
    scenario.momentum = 0.9;
    RunConfig run = make_run(scenario);
    const auto wiring = Wiring::parse_toml(
        "[[wiring.level]]\nranks = 2\nexchange = 'aggregate'\n"
        "[[wiring.level]]\nexchange = 'gossip'\nlocal_steps = 2\n",
        "levels");
    OptimizerConfig optimizer;
    optimizer.momentum = scenario.momentum;
    run.parts = parts_of(scenario, *resolve(*wiring), optimizer);
    return run;
  });
}

TEST_F(ResidentRun, DeathOfARankLeavesTheBitsOfTheHost) {
  for (const std::string preset : {"sgp", "ar", "eager-solo"}) {
    SCOPED_TRACE(preset);
    expect_host_bits([&preset] {
      Scenario scenario;
      scenario.preset = preset;
      scenario.momentum = 0.9;
      RunConfig run = make_run(scenario);
      run.deaths = {{2, std::chrono::milliseconds(120)}};
      return run;
    });
  }
}

TEST_F(ResidentRun, ChangeOfTheAlgorithmHasTheBitsOfTheHost) {
  Scenario scenario;
  scenario.steps = 40;
  scenario.momentum = 0.9;
  scenario.lr = 0.02;
  expect_host_bits([&scenario] { return make_changing(scenario); });
  const auto watcher = std::make_shared<Watcher>();
  static_cast<void>(run_virtual(make_resident(make_changing(scenario), 2), watcher));
  EXPECT_EQ(watcher->changes.size(), 1u);
}

TEST_F(ResidentRun, ChangeToARoleInTheHostsMemoryIsRefused) {
  RoleType role = *resolve(find_preset("ar")->wiring)->role;
  role.any_device = [](const Plan&) { return false; };
  Scenario scenario;
  scenario.steps = 40;
  scenario.lr = 0.02;
  for (const bool resident : {false, true}) {
    fake::reset();
    const auto watcher = std::make_shared<Watcher>();
    RunConfig run = make_changing(scenario, &role);
    if (resident) run = make_resident(std::move(run), 2);
    const RunResult result = run_virtual(std::move(run), watcher);
    EXPECT_FALSE(result.error) << result.error->message;
    EXPECT_EQ(watcher->changes.size(), resident ? 0u : 1u);
    if (resident) {
      EXPECT_THAT(watcher->warnings, Contains(HasSubstr("keeps its vectors in the host's memory")));
    }
  }
}

void expect_same_state(const StateDict& here, const StateDict& host) {
  ASSERT_EQ(here.entries().size(), host.entries().size());
  for (const auto& [name, value] : host.entries()) {
    SCOPED_TRACE(name);
    ASSERT_EQ(here.entries().count(name), 1u);
    const StateValue& own = here.entries().at(name);
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      ASSERT_TRUE(std::holds_alternative<at::Tensor>(own));
      EXPECT_TRUE(std::get<at::Tensor>(own).equal(*tensor));
      continue;
    }
    ASSERT_EQ(own.index(), value.index());
    if (const auto* number = std::get_if<double>(&value)) {
      const double other = std::get<double>(own);  // NaN: not measured
      EXPECT_TRUE(other == *number || (std::isnan(other) && std::isnan(*number))) << other;
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      EXPECT_EQ(std::get<std::int64_t>(own), *integer);
    } else {
      EXPECT_EQ(std::get<std::string>(own), std::get<std::string>(value));
    }
  }
}

// A checkpoint of models on devices is that of models in the host's memory, and continues in either
// place.
TEST_F(ResidentRun, CheckpointsAreTheSameAndResumeInEitherPlace) {
  for (const std::string preset :
       {"osgp", "ad-psgd", "diloco", "topk", "gem", "choco-sgd", "eager-solo", "ar"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.momentum = 0.9;
    if (preset == "diloco") scenario.set = {{"local_steps", "4"}};
    scenario.folder = fresh_folder("resident_host_" + preset);
    run_well(make_run(scenario));
    const auto host = read_checkpoint(scenario.folder + "/epoch-0001");
    scenario.folder = fresh_folder("resident_" + preset);
    run_well(make_resident(scenario, 2));
    EXPECT_THAT(fake::violations(), IsEmpty());
    const auto here = read_checkpoint(scenario.folder + "/epoch-0001");
    ASSERT_TRUE(host.ok() && here.ok());
    ASSERT_EQ(here->ranks.size(), host->ranks.size());
    for (std::size_t rank = 0; rank < host->ranks.size(); ++rank)
      expect_same_state(here->ranks[rank], host->ranks[rank]);
    scenario.folder.clear();
    const auto resumed = [](RunConfig rest, const Checkpoint& checkpoint) {
      rest.resume = checkpoint;
      return run_well(std::move(rest));
    };
    fake::reset();
    const RunResult expected = resumed(make_run(scenario), *here);
    for (const Checkpoint& checkpoint : {*here, *host}) {
      const RunResult result = resumed(make_resident(scenario, 2), checkpoint);
      EXPECT_TRUE(at::equal(result.z.read(), expected.z.read()));
    }
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
}

TEST_F(ResidentRun, MovesNoModelOverTheHostsLink) {
  const auto of_step = [](bool resident) {
    const fake::Traffic traffic = traffic_of_step("osgp", [&](const Scenario& scenario) {
      RunConfig run = make_run(scenario);
      for (Rank rank = 0; rank < run.workers(); ++rank) {
        TorchComputeConfig config = tiny_config(plain_layers, rank, run.workers());
        config.runtime = fake::open_device(0, "the worker of rank " + std::to_string(rank));
        run.computes[static_cast<std::size_t>(rank)] = make_tiny(std::move(config));
      }
      if (resident) put_on_devices(run, 1);
      return run;
    });
    return std::pair(traffic.up, traffic.down);
  };
  const std::uint64_t model = make_tiny(tiny_config(plain_layers))->initial_parameters().nbytes();
  const auto [up, down] = of_step(true);
  const auto [host_up, host_down] = of_step(false);
  EXPECT_LT(down, 64u) << "loss and accuracies";
  // The batches go up either way, the one after the last step too where it has been read in time.
  EXPECT_NEAR(static_cast<double>(host_up - up), static_cast<double>(model), 25) << "z";
  EXPECT_EQ(host_down - down, model) << "the gradient";
}

// Bytes over the host's link beyond those of the same run without compression.
TEST_F(ResidentRun, CompressedVectorsStayOnTheDevice) {
  const auto traffic_of = [](const std::vector<std::pair<std::string, std::string>>& set) {
    Scenario scenario;
    scenario.preset = "ar";
    scenario.set = set;
    scenario.dimension = 3000;
    RunConfig run = make_resident(scenario, 1);
    run.evaluator = nullptr;
    fake::reset();
    run_well(std::move(run));
    return fake::traffic();
  };
  const fake::Traffic plain = traffic_of({});
  constexpr std::uint64_t kRankSteps = 4 * 20;
  using Set = std::vector<std::pair<std::string, std::string>>;
  for (const Set& set :
       {Set{{"compress", "int8"}}, Set{{"compress", "bf16"}}, Set{{"compress", "fp16"}},
        Set{{"compress", "top-k"}, {"density", "0.1"}}}) {
    SCOPED_TRACE(set.front().second);
    const fake::Traffic packed = traffic_of(set);
    EXPECT_LE(packed.up, plain.up + 3000 * sizeof(float)) << "a model";
    EXPECT_LE(packed.down, plain.down + kRankSteps * sizeof(double)) << "the number of entries";
  }
  EXPECT_GT(traffic_of({{"compress", "sign"}}).down, plain.down + kRankSteps * 3000);
}

// What a round does to the model is one pass: with the step where ranks mix before it, else beside
// it, with the share that a rank keeps where exchanges overlap.
TEST_F(ResidentRun, RoundsOfGossipAreOneKernel) {
  for (const std::string preset : {"osgp", "sgp", "d-psgd"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.momentum = 0.9;
    scenario.dimension = 3000;
    RunConfig run = make_resident(scenario, 1);
    const auto steps =
        static_cast<std::uint64_t>(run.ranks) * static_cast<std::uint64_t>(scenario.steps);
    fake::reset();
    run_well(std::move(run));
    const bool with_step = preset == "d-psgd";
    EXPECT_EQ(fake::calls("grapevine::push_sum_step"), with_step ? steps : 0);
    EXPECT_EQ(fake::calls("grapevine::sgd_step"), with_step ? 0 : steps);
    if (!with_step) {
      EXPECT_GE(fake::calls("grapevine::push_sum_fold"), steps - 2 * 4);
    }
  }
}

// Each wait that is left out is found, in a run of the shipped actors.
TEST_F(ResidentRun, MissingWaitsAreFound) {
  const std::map<fake::Fault, std::string> found = {
      {fake::Fault::ready_events_are_empty, "for which it has not waited"},
      {fake::Fault::foreign_is_not_awaited, "'copy between devices'"},
      {fake::Fault::allocator_is_not_told, "the next owner of the memory"}};
  for (const auto& [fault, words] : found) {
    Scenario scenario;
    scenario.preset = "osgp";
    fake::reset();
    fake::set_fault(fault);
    static_cast<void>(run_virtual(make_resident(scenario, 2), std::make_shared<Quiet>()));
    EXPECT_THAT(fake::violations(), Contains(HasSubstr(words))) << static_cast<int>(fault);
  }
}

}  // namespace resident_run_test
}  // namespace grapevine
