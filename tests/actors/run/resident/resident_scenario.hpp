// Runs whose ranks keep their models on the fake devices of the tests.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
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

// Bytes of a step of one rank, in the run that `make` makes of a scenario in which no epoch ends:
// those of a longer run beyond those of a shorter one, so that start and end cancel.
template <class Make>
fake::Traffic traffic_of_step(const std::string& preset, const Make& make) {
  constexpr Step kFew = 10, kMore = 10;
  std::uint64_t ranks = 0;
  const auto traffic = [&](Step steps) {
    virtual_run_test::Scenario scenario;
    scenario.preset = preset;
    scenario.steps = steps;
    scenario.steps_per_epoch = 1000;
    RunConfig run = make(scenario);
    run.evaluator = nullptr;
    ranks = static_cast<std::uint64_t>(run.workers());
    fake::reset();
    run_well(std::move(run));
    return fake::traffic();
  };
  const fake::Traffic few = traffic(kFew), many = traffic(kFew + kMore);
  const std::uint64_t steps = static_cast<std::uint64_t>(kMore) * ranks;
  return {(many.up - few.up) / steps, (many.down - few.down) / steps,
          (many.across - few.across) / steps, (many.up_in_place - few.up_in_place) / steps};
}

// A device that does not answer.
class Silent : public DeviceRuntime {
 public:
  explicit Silent(std::shared_ptr<DeviceRuntime> inner) : inner_(std::move(inner)) {}
  at::Device device() const override { return inner_->device(); }
  bool in_host_memory() const override { return false; }
  std::unique_ptr<StreamScope> enter(Stream stream) override { return inner_->enter(stream); }
  void copy(Stream stream, const at::Tensor& to, const at::Tensor& from) override {
    inner_->copy(stream, to, from);
  }
  EventHandle record(Stream stream) override { return inner_->record(stream); }
  void wait(Stream stream, const EventHandle& event) override { inner_->wait(stream, event); }
  Expected<void> host_wait(const EventHandle&, Duration) override {
    return Error{Errc::timeout, "no answer"};
  }
  void record_stream(const at::Tensor& t, Stream stream) override {
    inner_->record_stream(t, stream);
  }
  std::shared_ptr<void> pinned_memory(std::size_t bytes) override {
    return inner_->pinned_memory(bytes);
  }

 private:
  const std::shared_ptr<DeviceRuntime> inner_;
};

}  // namespace grapevine::resident
