// The bytes that a step of training moves: through the host's memory, by operators, and over the
// links of the GPUs. In models, for the table of docs/gpu.md.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gpu/memory/model_memory.hpp"
#include "tests/actors/run/resident/resident_scenario.hpp"
#include "tests/gpu/fake_device/host_traffic.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace host_traffic_run_test {

using testing::IsEmpty;

// Large beside a batch, and beside vectors whose loops are no operators (HostTraffic).
torch::nn::Sequential wide_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 8192), torch::nn::Tanh(),
                               torch::nn::Linear(8192, 6));
}

enum class ModelIn { ordinary_memory, pinned_memory, device };

RunConfig run_of(const virtual_run_test::Scenario& scenario, ModelIn place) {
  RunConfig run = virtual_run_test::make_run(scenario);
  for (Rank rank = 0; rank < run.workers(); ++rank) {
    TorchComputeConfig config = tiny_config(wide_layers, rank, run.workers());
    config.runtime = fake::open_device(0, "the worker of rank " + std::to_string(rank));
    run.computes[static_cast<std::size_t>(rank)] = make_tiny(std::move(config));
  }
  run.evaluator = nullptr;
  if (place == ModelIn::device) resident::put_on_devices(run, 1);
  if (place == ModelIn::pinned_memory)
    run.model_memory =
        ModelMemory::make([device = fake::open_device(0, "pinned memory")](
                              std::size_t bytes) { return device->pinned_memory(bytes); },
                          std::size_t{1} << 30);
  return run;
}

// Of one rank, in models.
struct StepTraffic {
  double read = 0;     // by operators, of the host's memory, and
  double written = 0;  // likewise
  double up = 0;       // over the link
  double down = 0;
};

std::ostream& operator<<(std::ostream& out, const StepTraffic& t) {
  return out << t.read << " read, " << t.written << " written, " << t.up << " up, " << t.down
             << " down";
}

// The bytes of a longer run beyond those of a shorter one: start and end cancel.
StepTraffic traffic_of_step(const std::string& preset, ModelIn place) {
  constexpr Step kFew = 10, kMore = 32;
  double ranks = 0;
  const auto traffic = [&](Step steps) {
    virtual_run_test::Scenario scenario;
    scenario.preset = preset;
    scenario.steps = steps;
    scenario.steps_per_epoch = 1000;
    scenario.lr = 0.01;
    scenario.momentum = 0.9;
    RunConfig run = run_of(scenario, place);
    ranks = run.workers();
    fake::reset();
    const fake::HostTraffic host;
    resident::run_well(std::move(run));
    const fake::HostBytes bytes = host.bytes();
    const fake::Traffic link = fake::traffic();
    EXPECT_THAT(fake::violations(), IsEmpty());
    return std::vector<std::uint64_t>{bytes.read, bytes.written, link.up, link.down};
  };
  const auto few = traffic(kFew), many = traffic(kFew + kMore);
  const auto model =
      static_cast<double>(make_tiny(tiny_config(wide_layers))->initial_parameters().nbytes());
  const auto of_step = [&](std::size_t i) {
    return (static_cast<double>(many[i]) - static_cast<double>(few[i])) / (kMore * ranks * model);
  };
  return {of_step(0), of_step(1), of_step(2), of_step(3)};
}

void expect_traffic(const std::string& preset, ModelIn place, const StepTraffic& expected) {
  SCOPED_TRACE(preset + ", place " + std::to_string(static_cast<int>(place)));
  constexpr double kBatches = 0.05;  // a batch is small, and seen by no algorithm
  const StepTraffic found = traffic_of_step(preset, place);
  EXPECT_NEAR(found.read, expected.read, kBatches) << found;
  EXPECT_NEAR(found.written, expected.written, kBatches) << found;
  EXPECT_NEAR(found.up, expected.up, kBatches) << found;
  EXPECT_NEAR(found.down, expected.down, kBatches) << found;
}

class HostTrafficRun : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }
};

// osgp: the step reads x, v and the gradient, and writes x and v. The fold reads x and a share, and
// writes z and what is kept of x, which is the next share as well: it is sent by reference. In
// ordinary memory the host copies z for the upload.
TEST_F(HostTrafficRun, AStepOfGossipIsTwoPasses) {
  expect_traffic("osgp", ModelIn::pinned_memory, {3 + 2, 2 + 2, 1, 1});
  expect_traffic("osgp", ModelIn::ordinary_memory, {3 + 2 + 1, 2 + 2 + 1, 1, 1});
  expect_traffic("osgp", ModelIn::device, {0, 0, 0, 0});
}

// ar: the step, and the all-reduce of the gradient between the ranks of a process.
TEST_F(HostTrafficRun, AStepOfAllReduceAddsTheSum) {
  const StepTraffic pinned = traffic_of_step("ar", ModelIn::pinned_memory);
  expect_traffic("ar", ModelIn::ordinary_memory,
                 {pinned.read + 1, pinned.written + 1, pinned.up, pinned.down});
  expect_traffic("ar", ModelIn::device, {0, 0, 0, 0});
}

}  // namespace host_traffic_run_test
}  // namespace grapevine
