// Runs whose ranks keep their models on the fake devices of the tests.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/actors/run/virtual_scenario.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/fake_device/staged_compute.hpp"

namespace grapevine::resident {

// The ranks are dealt to `devices`; servers as well.
inline void put_on_devices(RunConfig& run, int devices) {
  for (Rank rank = 0; rank < run.world_size(); ++rank) {
    const std::string name = "rank " + std::to_string(rank);
    const auto open = [&](const std::string& user) {
      return fake::open_device(rank % devices, name + user);
    };
    run.peer_devices.push_back({open(""), open("'s outgoing"), open("'s incoming")});
  }
}

inline RunConfig make_resident(RunConfig run, int devices) {
  put_on_devices(run, devices);
  for (Rank rank = 0; rank < run.workers(); ++rank) {
    auto& compute = run.computes[static_cast<std::size_t>(rank)];
    compute = std::make_shared<fake::StagedCompute>(
        std::move(compute),
        fake::open_device(rank % devices, "the worker of rank " + std::to_string(rank)));
  }
  return run;
}

inline RunConfig make_resident(const virtual_run_test::Scenario& scenario, int devices) {
  return make_resident(virtual_run_test::make_run(scenario), devices);
}

inline RunResult run_well(RunConfig config) {
  RunResult result = run_virtual(std::move(config), std::make_shared<virtual_run_test::Quiet>());
  EXPECT_FALSE(result.error) << result.error->message;
  return result;
}

}  // namespace grapevine::resident
