// Whole runs whose ranks keep their models in pinned memory of the host and compute on devices, in
// virtual time: z is read by the device where it lies, and the results are those of models in
// ordinary memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/run/runtime.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "gpu/memory/model_memory.hpp"
#include "tests/actors/run/resident/resident_scenario.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace pinned_run_test {

using resident::run_well;
using testing::IsEmpty;
using virtual_run_test::fresh_folder;
using virtual_run_test::kPresets;
using virtual_run_test::make_run;
using virtual_run_test::Scenario;
using virtual_run_test::Waiting;

constexpr std::size_t kMuch = std::size_t{1} << 30;

std::uint64_t model_bytes() {
  return make_tiny(tiny_config(plain_layers))->initial_parameters().nbytes();
}

// Of the worker of a rank; one for all runs, as each stream makes all later waits longer.
std::shared_ptr<DeviceRuntime> device_of(Rank rank) {
  static std::map<Rank, std::shared_ptr<DeviceRuntime>> opened;
  auto& device = opened[rank];
  if (!device) device = fake::open_device(rank % 2, "the worker of rank " + std::to_string(rank));
  return device;
}

std::shared_ptr<ModelMemory> pinned_memory(std::size_t limit = kMuch) {
  return ModelMemory::make([](std::size_t bytes) { return device_of(0)->pinned_memory(bytes); },
                           limit);
}

// Gradients, and those whose z lies in pinned memory.
struct Counts {
  std::atomic<std::uint64_t> gradients{0};
  std::atomic<std::uint64_t> pinned{0};
};

class CountingCompute final : public Compute {
 public:
  CountingCompute(std::shared_ptr<Compute> inner, std::shared_ptr<Counts> counts)
      : inner_(std::move(inner)), counts_(std::move(counts)) {}

  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }
  Gradient gradient(GradientRequest request) override {
    ++counts_->gradients;
    if (is_pinned_model(request.z.read())) ++counts_->pinned;
    return inner_->gradient(std::move(request));
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }

 private:
  const std::shared_ptr<Compute> inner_;
  const std::shared_ptr<Counts> counts_;
};

struct Ran {
  RunResult result;
  std::uint64_t gradients = 0;
  std::uint64_t pinned = 0;
};

// With workers on two devices. Null `memory`: models in ordinary memory.
RunConfig on_devices(RunConfig run, std::shared_ptr<ModelMemory> memory,
                     const std::shared_ptr<Counts>& counts) {
  for (Rank rank = 0; rank < run.workers(); ++rank) {
    TorchComputeConfig config = tiny_config(plain_layers, rank, run.workers());
    config.runtime = device_of(rank);
    run.computes[static_cast<std::size_t>(rank)] =
        std::make_shared<CountingCompute>(make_tiny(std::move(config)), counts);
  }
  run.evaluator = make_tiny(tiny_config(plain_layers));
  run.model_memory = std::move(memory);
  return run;
}

class PinnedRun : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  static Ran run_on_devices(RunConfig run, std::shared_ptr<ModelMemory> memory) {
    const auto counts = std::make_shared<Counts>();
    RunConfig config = on_devices(std::move(run), std::move(memory), counts);
    fake::reset();
    Ran ran;
    ran.result = run_well(std::move(config));
    ran.gradients = counts->gradients;
    ran.pinned = counts->pinned;
    EXPECT_THAT(fake::violations(), IsEmpty());
    EXPECT_EQ(fake::traffic().up_in_place, ran.pinned * model_bytes());
    return ran;
  }

  // The results of pinned models are those of models in ordinary memory.
  template <class Make>
  static Ran expect_same_bits(const Make& make, const std::shared_ptr<ModelMemory>& memory) {
    const Ran ordinary = run_on_devices(make(), nullptr), pinned = run_on_devices(make(), memory);
    EXPECT_EQ(ordinary.pinned, 0u);
    EXPECT_EQ(pinned.gradients, ordinary.gradients);
    EXPECT_TRUE(at::equal(pinned.result.z.read(), ordinary.result.z.read()));
    EXPECT_EQ(pinned.result.trace_hash, ordinary.result.trace_hash);
    EXPECT_EQ(pinned.result.weight_sum, ordinary.result.weight_sum);
    return pinned;
  }
  template <class Make>
  static void expect_all_pinned(const Make& make) {
    const auto memory = pinned_memory();
    const Ran ran = expect_same_bits(make, memory);
    EXPECT_GT(ran.gradients, 0u);
    EXPECT_EQ(ran.pinned, ran.gradients);
    EXPECT_EQ(memory->usage().overflows, 0);
  }
};

Scenario scenario_of(const std::string& preset) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.lr = 0.02;
  if (preset == "diloco" || preset == "slowmo" || preset == "noloco" ||
      preset == "decoupled-diloco")
    scenario.set = {{"local_steps", "4"}};
  return scenario;
}

// At no step does the host copy z: the device reads it where the role has written it.
TEST_F(PinnedRun, TheHostCopiesNoModelForAnUpload) {
  for (const std::string preset : {"osgp", "sgp", "ar", "d-psgd", "ad-psgd"}) {
    SCOPED_TRACE(preset);
    Scenario scenario = scenario_of(preset);
    scenario.momentum = 0.9;
    expect_all_pinned([&scenario] { return make_run(scenario); });
  }
}

// Of the eight that --pinned-models gives it by default.
TEST_F(PinnedRun, ARankOfOsgpNeedsSixModels) {
  const auto memory = pinned_memory();
  Scenario scenario = scenario_of("osgp");
  scenario.steps = 60;
  run_on_devices(make_run(scenario), memory);
  EXPECT_LE(memory->usage().bytes, std::size_t{4} * 6 * StagingPool::block_bytes(model_bytes()));
}

TEST_F(PinnedRun, EveryPresetHasTheBitsOfOrdinaryMemory) {
  for (const std::string& preset : kPresets) {
    SCOPED_TRACE(preset);
    const Scenario scenario = scenario_of(preset);
    const Ran ran = expect_same_bits([&scenario] { return make_run(scenario); }, pinned_memory());
    EXPECT_EQ(ran.pinned, ran.gradients);
  }
}

TEST_F(PinnedRun, OtherPartsHaveTheBitsOfOrdinaryMemory) {
  const std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>>
      wirings = {{"osgp", {{"running_sums", "true"}}}, {"osgp", {{"staleness", "2"}}},
                 {"sgp", {{"hierarchy", "2"}}},        {"d-psgd", {{"compress", "int8"}}},
                 {"downpour", {{"servers", "2"}}},     {"gem", {{"servers", "2"}}},
                 {"local-sgd", {{"local_steps", "4"}}}};
  for (const auto& [preset, set] : wirings) {
    SCOPED_TRACE(preset + ", " + set.front().first + " = " + set.front().second);
    Scenario scenario = scenario_of(preset);
    scenario.set = set;
    const Ran ran = expect_same_bits([&scenario] { return make_run(scenario); }, pinned_memory());
    EXPECT_EQ(ran.pinned, ran.gradients);
  }
}

// The threads of a real run: peers write models while devices read others.
TEST_F(PinnedRun, OnThreadsOfItsOwn) {
  for (const std::string preset : {"ar", "osgp", "ad-psgd", "gem"}) {
    SCOPED_TRACE(preset);
    Scenario scenario = scenario_of(preset);
    scenario.delay = "";
    const auto counts = std::make_shared<Counts>();
    RunConfig config = on_devices(make_run(scenario), pinned_memory(), counts);
    fake::reset();
    const auto observer = std::make_shared<Waiting>();
    Runtime runtime(std::move(config), observer);
    const RunResult result = observer->wait();
    ASSERT_FALSE(result.error) << result.error->message;
    virtual_run_test::expect_all_accounted(result);
    EXPECT_EQ(counts->pinned, counts->gradients);
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
}

// With fewer pinned blocks than models, the others are copied by the host.
TEST_F(PinnedRun, BeyondTheLimitModelsAreStaged) {
  const Scenario scenario = scenario_of("osgp");
  for (const std::size_t blocks : {0, 1, 5, 9}) {
    SCOPED_TRACE(blocks);
    const std::size_t limit = blocks * StagingPool::block_bytes(model_bytes());
    const auto memory = pinned_memory(limit);
    const Ran ran = expect_same_bits([&scenario] { return make_run(scenario); }, memory);
    EXPECT_LT(ran.pinned, ran.gradients);
    EXPECT_GT(memory->usage().overflows, 0);
    EXPECT_LE(memory->usage().bytes, limit);
  }
}

// The model of a checkpoint is a vector of its own.
TEST_F(PinnedRun, ResumedModelsLieInPinnedMemory) {
  for (const std::string preset : {"osgp", "ar"}) {
    SCOPED_TRACE(preset);
    Scenario scenario = scenario_of(preset);
    scenario.folder = fresh_folder("pinned_" + preset);
    run_on_devices(make_run(scenario), pinned_memory());
    const auto saved = read_checkpoint(scenario.folder + "/epoch-0001");
    ASSERT_TRUE(saved.ok());
    scenario.folder.clear();
    expect_all_pinned([&] {
      RunConfig rest = make_run(scenario);
      rest.resume = *saved;
      return rest;
    });
  }
}

// So is the model that a rank takes of another when it joins.
TEST_F(PinnedRun, JoinedModelsLieInPinnedMemory) {
  Scenario scenario = scenario_of("sgp");
  scenario.steps = 60;
  scenario.steps_per_epoch = 1000;
  expect_all_pinned([&scenario] {
    RunConfig run = make_run(scenario);
    run.deaths = {{2, std::chrono::milliseconds(120)}};
    run.returns = {{2, std::chrono::milliseconds(180)}};
    return run;
  });
}

// And the mean of all models, with which another algorithm begins.
TEST_F(PinnedRun, ModelsAfterAChangeOfTheAlgorithmLieInPinnedMemory) {
  Scenario scenario = scenario_of("sgp");
  scenario.steps = 40;
  expect_all_pinned([&scenario] {
    RunConfig run = make_run(scenario);
    run.change =
        [scenario](const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
      const auto named = settings.find(kAlgorithmSetting);
      const std::string preset = named == settings.end() ? scenario.preset : named->second;
      LrConfig rate;
      rate.lr = scenario.lr;
      return *make_parts(*resolve(find_preset(preset)->wiring),
                         {scenario.steps, scenario.steps_per_epoch}, *LrSchedule::make(rate),
                         OptimizerConfig{}, scenario.ranks);
    };
    run.schedule = {{1, {{kAlgorithmSetting, "ar"}}}};
    return run;
  });
}

}  // namespace pinned_run_test
}  // namespace grapevine
