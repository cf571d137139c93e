// Collectives of several GPUs, and calls that wait for one of them: gpu/replicas/launch_gate.hpp.
#include "gpu/replicas/launch_gate.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gpu/replicas/replica_launch.hpp"
#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace launch_gate_test {

constexpr Duration kLong = std::chrono::seconds(60);
constexpr Duration kShort = std::chrono::milliseconds(20);

TEST(LaunchGate, IsClosedWhenNoPassIsHeldAndGivesNoneThen) {
  LaunchGate gate;
  auto pass = std::make_unique<LaunchGate::Pass>(gate, kLong);
  EXPECT_TRUE(pass->granted());
  EXPECT_TRUE(LaunchGate::Pass(gate, kLong).granted()) << "one inside another";
  EXPECT_EQ(gate.close(kShort).error().code, Errc::timeout);
  const auto again = std::make_unique<LaunchGate::Pass>(gate, kLong);
  EXPECT_TRUE(again->granted()) << "it stayed open";
  pass = nullptr;
  EXPECT_EQ(gate.close(kShort).error().code, Errc::timeout);
}

TEST(LaunchGate, OpensForThoseWhoWait) {
  LaunchGate gate;
  ASSERT_TRUE(gate.close(kLong).ok());
  EXPECT_FALSE(LaunchGate::Pass(gate, kShort).granted());
  auto waiting =
      std::async(std::launch::async, [&] { return LaunchGate::Pass(gate, kLong).granted(); });
  auto second = std::async(std::launch::async, [&] { return gate.close(kLong).ok(); });
  while (gate.waiting() == 0) std::this_thread::yield();
  gate.open();
  EXPECT_TRUE(second.get());
  gate.open();
  EXPECT_TRUE(waiting.get());
}

// Whoever wants a pass while the gate is to be closed waits: else a thread that takes one after
// another would keep a collective from being launched for ever.
TEST(LaunchGate, ClosingGoesFirst) {
  LaunchGate gate;
  std::atomic<bool> end{false};
  std::atomic<int> passes{0};
  std::vector<std::thread> busy;
  for (int i = 0; i < 3; ++i)
    busy.emplace_back([&] {
      while (!end) {
        const LaunchGate::Pass pass(gate, kLong);
        ++passes;
        std::this_thread::yield();
      }
    });
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(gate.close(kLong).ok());
    const int before = passes;
    std::this_thread::yield();
    EXPECT_EQ(passes, before);
    gate.open();
  }
  end = true;
  for (std::thread& each : busy) each.join();
}

// A collective of two replicas that occupies the first one's GPU from its launch to the second's.
class Collective {
 public:
  explicit Collective(LaunchGate& gate) : launch_(2, gate) {}

  bool half_launched() const { return launched_ == 1; }

  // `meanwhile` runs when the first has launched and the second has not.
  Expected<void> run(const std::function<void()>& meanwhile) {
    auto second = std::async(std::launch::async, [&] {
      return launch_.run(1, kLong, [&]() -> Expected<void> {
        while (launched_ == 0) std::this_thread::yield();
        meanwhile();
        ++launched_;
        return {};
      });
    });
    const auto first = launch_.run(0, kLong, [&]() -> Expected<void> {
      ++launched_;
      return {};
    });
    const auto last = second.get();
    launched_ = 0;
    return first ? last : first;
  }

 private:
  ReplicaLaunch launch_;
  std::atomic<int> launched_{0};
};

// What evaluation does on a GPU, and locking pages, may wait for it: never between two launches.
class WatchedDevice final : public DeviceRuntime {
 public:
  explicit WatchedDevice(const Collective& collective) : collective_(collective) {}
  at::Device device() const override { return lazy_.device(); }
  bool in_host_memory() const override { return false; }
  std::unique_ptr<StreamScope> enter(Stream stream) override {
    look();
    return lazy_.enter(stream);
  }
  void copy(Stream stream, const at::Tensor& to, const at::Tensor& from) override {
    look();
    lazy_.copy(stream, to, from);
  }
  EventHandle record(Stream stream) override { return lazy_.record(stream); }
  void wait(Stream stream, const EventHandle& event) override { lazy_.wait(stream, event); }
  Expected<void> host_wait(const EventHandle& event, Duration timeout) override {
    return lazy_.host_wait(event, timeout);
  }
  void record_stream(const at::Tensor& t, Stream stream) override {
    lazy_.record_stream(t, stream);
  }
  std::shared_ptr<void> pinned_memory(std::size_t bytes) override {
    look();
    return lazy_.pinned_memory(bytes);
  }

  std::atomic<int> uses{0};
  std::atomic<int> deadlocks{0};

 private:
  void look() {
    ++uses;
    if (collective_.half_launched()) ++deadlocks;
  }

  const Collective& collective_;
  LazyDevice lazy_;
};

TEST(LaunchGate, EvaluationDoesNotRunBetweenTheLaunchesOfReplicas) {
  Collective collective(launch_gate());
  const auto device = std::make_shared<WatchedDevice>(collective);
  TorchComputeConfig config = tiny_config(tiny_layers);
  const auto cpu = make_tiny(config);
  config.runtime = device;
  config.eval_batch_size = 4;
  const auto compute = make_tiny(config);
  const FrozenTensor z = compute->initial_parameters();
  std::atomic<int> evaluated{0};
  std::atomic<bool> end{false};
  Expected<Evaluation> result = Error{};
  std::thread evaluating([&] {
    while (!end) {
      result = compute->evaluate(z, {});
      ++evaluated;
    }
  });
  // In each of the launches, evaluation has come to where it must wait, or gone where it must not.
  for (int round = 0; round < 20; ++round) {
    const auto launched = collective.run([&] {
      const int before = device->uses;
      while (launch_gate().waiting() == 0 && device->uses == before) std::this_thread::yield();
    });
    ASSERT_TRUE(launched.ok()) << launched.error().message;
  }
  const int before = evaluated;
  while (evaluated < before + 2) std::this_thread::yield();
  end = true;
  evaluating.join();
  EXPECT_EQ(device->deadlocks, 0);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_NEAR(result->loss, cpu->evaluate(z, {})->loss, 1e-6);
}

// A pass is not held while the host waits for the device: a launch would wait as long.
TEST(LaunchGate, EvaluationHoldsNoPassWhileItWaits) {
  bool closed = false;
  const auto device = std::make_shared<LazyDevice>();
  TorchComputeConfig config = tiny_config(tiny_layers);
  config.runtime = device;
  const auto compute = make_tiny(config);
  device->on_host_wait = [&] {
    auto closing = std::async(std::launch::async, [] {
      const bool in_time = launch_gate().close(kLong).ok();
      launch_gate().open();
      return in_time;
    });
    closed = closing.wait_for(kLong / 2) == std::future_status::ready && closing.get();
  };
  EXPECT_TRUE(compute->evaluate(compute->initial_parameters(), {}).ok());
  device->on_host_wait = nullptr;
  EXPECT_TRUE(closed);
}

TEST(ReplicaLaunch, AFailureEndsItForAll) {
  LaunchGate gate;
  ReplicaLaunch launch(2, gate);
  auto other = std::async(std::launch::async,
                          [&] { return launch.run(1, kLong, [] { return Expected<void>(); }); });
  const auto failed = launch.run(0, kLong, [] {
    return Expected<void>(Error{Errc::failed, "the GPU has fallen off the bus"});
  });
  EXPECT_EQ(failed.error().message, "the GPU has fallen off the bus");
  EXPECT_EQ(other.get().error().code, Errc::peer_down);
  EXPECT_TRUE(gate.close(kLong).ok()) << "it is open again";
}

TEST(ReplicaLaunch, AGateThatDoesNotCloseIsATimeoutForAll) {
  LaunchGate gate;
  ReplicaLaunch launch(2, gate);
  const LaunchGate::Pass held(gate, kLong);
  int launches = 0;
  const auto run = [&](std::size_t replica, Duration timeout) {
    return launch.run(replica, timeout, [&] {
      ++launches;
      return Expected<void>();
    });
  };
  auto other = std::async(std::launch::async, [&] { return run(1, kLong); });
  auto first = std::async(std::launch::async, [&] { return run(0, kLong / 600); });
  EXPECT_EQ(first.get().error().code, Errc::timeout);
  EXPECT_EQ(other.get().error().code, Errc::peer_down);
  EXPECT_EQ(launches, 0);
}

}  // namespace launch_gate_test
}  // namespace grapevine
