// Whole runs of workers with two devices, whose ranks keep their models on the first of them: the
// results are the bits of the same runs with models in the host's memory, and no stream misses a
// wait.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/actors/run/resident/resident_scenario.hpp"
#include "tests/gpu/resident/replicas_on_devices.hpp"

namespace grapevine {
namespace resident_replicas_run_test {

using resident::put_on_devices;
using resident::run_well;
using resident::traffic_of_step;
using testing::IsEmpty;
using virtual_run_test::kPresets;
using virtual_run_test::make_run;
using virtual_run_test::Scenario;

// More parameters than kernels do without ATen.
torch::nn::Sequential wide_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 256), torch::nn::BatchNorm1d(256),
                               torch::nn::Tanh(), torch::nn::Linear(256, 6));
}

// The lead of rank r is device r modulo 2.
RunConfig make_replicated(const Scenario& scenario, bool grouped, bool resident,
                          torch::nn::Sequential (*layers)() = &wide_layers) {
  constexpr std::int64_t kBatch = 4;
  RunConfig run = make_run(scenario);
  for (Rank rank = 0; rank < run.workers(); ++rank)
    run.computes[static_cast<std::size_t>(rank)] = replicas_on_devices(
        {rank % 2, 1 - rank % 2}, grouped, tiny_config(layers, rank, run.workers(), kBatch),
        "the worker of rank " + std::to_string(rank));
  run.evaluator = make_tiny(tiny_config(layers));
  if (resident) put_on_devices(run, 2);
  return run;
}

class ResidentReplicasRun : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    at::set_num_threads(1);
  }
  void TearDown() override { fake::reset(); }

  static void expect_host_bits(const Scenario& scenario, bool grouped) {
    const RunResult host = run_well(make_replicated(scenario, grouped, false));
    fake::reset();
    const RunResult here = run_well(make_replicated(scenario, grouped, true));
    ASSERT_TRUE(here.z.defined() && host.z.defined());
    EXPECT_TRUE(at::equal(here.z.read(), host.z.read()));
    EXPECT_TRUE(at::equal(here.buffers.read(), host.buffers.read()));
    EXPECT_EQ(here.trace_hash, host.trace_hash);
    EXPECT_EQ(here.weight_sum, host.weight_sum);
    EXPECT_EQ(here.consensus_distance, host.consensus_distance);
    EXPECT_EQ(here.ledger.committed, host.ledger.committed);
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
};

TEST_F(ResidentReplicasRun, EveryPresetHasTheBitsOfTheHost) {
  for (const std::string& preset : kPresets)
    for (const bool grouped : {false, true}) {
      SCOPED_TRACE(testing::Message() << preset << ", grouped " << grouped);
      Scenario scenario;
      scenario.preset = preset;
      scenario.steps = 8;
      scenario.steps_per_epoch = 4;
      scenario.lr = 0.02;
      if (preset == "diloco" || preset == "slowmo" || preset == "noloco" ||
          preset == "decoupled-diloco")
        scenario.set = {{"local_steps", "4"}};
      expect_host_bits(scenario, grouped);
    }
}

TEST_F(ResidentReplicasRun, MovesNoModelOverTheHostsLink) {
  const std::uint64_t model = make_tiny(tiny_config(plain_layers))->initial_parameters().nbytes();
  for (const std::string preset : {"osgp", "sgp"})
    for (const bool grouped : {false, true}) {
      SCOPED_TRACE(testing::Message() << preset << ", grouped " << grouped);
      const auto of_step = [&](bool resident) {
        return traffic_of_step(preset, [&](const Scenario& scenario) {
          return make_replicated(scenario, grouped, resident, &plain_layers);
        });
      };
      const fake::Traffic here = of_step(true), host = of_step(false);
      EXPECT_LT(here.down, 128u) << "loss and accuracies of two devices";
      EXPECT_LT(here.up, model) << "batches";
      // A step moves z, the gradient unless a group has summed it, and a share whose receiver's
      // lead is the other device.
      const std::uint64_t least = grouped ? model : 2 * model;
      EXPECT_GE(here.across, least);
      EXPECT_LE(here.across, least + model);
      EXPECT_GE(host.up, here.up + model / 2) << "z";
      EXPECT_EQ(host.down - here.down, grouped ? model : 2 * model) << "gradients";
      EXPECT_EQ(host.across, 0u);
    }
}

}  // namespace resident_replicas_run_test
}  // namespace grapevine
