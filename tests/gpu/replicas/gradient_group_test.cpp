#include "gpu/replicas/gradient_group.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/replicas/replica_barrier.hpp"

namespace grapevine {
namespace gradient_group_test {

at::Device gpu(int index) { return {at::kCUDA, static_cast<at::DeviceIndex>(index)}; }

bool mentions(const GroupChoice& choice, const std::string& what) {
  return choice.why.find(what) != std::string::npos && choice.why.find('\n') == std::string::npos;
}

TEST(GradientGroup, AGpuForEachReplicaIsNccl) {
  const GroupChoice choice = choose_group({gpu(2), gpu(0), gpu(1)}, "", true);
  EXPECT_TRUE(choice.nccl);
  EXPECT_TRUE(mentions(choice, "3 replicas")) << choice.why;
}

TEST(GradientGroup, WhatMeetsOnTheHostSaysWhy) {
  const GroupChoice shared = choose_group({gpu(0), gpu(1), gpu(0)}, "", true);
  EXPECT_FALSE(shared.nccl);
  EXPECT_TRUE(mentions(shared, "replicas 0 and 2 share cuda:0")) << shared.why;
  const GroupChoice mixed = choose_group({gpu(0), at::kCPU}, "", true);
  EXPECT_FALSE(mixed.nccl);
  EXPECT_TRUE(mentions(mixed, "replica 1 computes on the CPU")) << mixed.why;
  const GroupChoice without = choose_group({gpu(0), gpu(1)}, "", false);
  EXPECT_FALSE(without.nccl);
  EXPECT_TRUE(mentions(without, "no NCCL")) << without.why;
  const GroupChoice crowded = choose_group({gpu(0), gpu(1)}, "it is not known", true);
  EXPECT_FALSE(crowded.nccl);
  EXPECT_TRUE(mentions(crowded, "summed on the host, as it is not known")) << crowded.why;
}

class NoGroup final : public GradientGroup {
 public:
  Expected<void> all_gather(std::size_t, at::Tensor&) override { return {}; }
  Expected<void> broadcast(std::size_t, const at::Tensor&) override { return {}; }
  Expected<void> all_reduce_mean(std::size_t, at::Tensor&) override { return {}; }
  void abort() override {}
};

class JoinedGroups : public testing::Test {
 protected:
  ~JoinedGroups() override { register_cuda_driver({}); }
};

TEST_F(JoinedGroups, AreMadeByTheDriverOfTheGpus) {
  const std::vector<at::Device> gpus = {gpu(3), gpu(1)};
  const Duration timeout = from_seconds(7);
  const auto group = [&](const std::vector<at::Device>& devices) {
    return open_group("rank 0", devices, "", timeout);
  };
  EXPECT_EQ(group(gpus).value(), nullptr) << "nobody can join them";

  std::vector<int> joined;
  Duration waited{};
  bool fails = false;
  GpuDriver driver;
  driver.join_group = [&](const std::vector<int>& asked,
                          Duration limit) -> Expected<std::shared_ptr<GradientGroup>> {
    joined = asked;
    waited = limit;
    if (fails) return Error{Errc::timeout, "GPU 1 did not come"};
    return std::shared_ptr<GradientGroup>(std::make_shared<NoGroup>());
  };
  register_cuda_driver(driver);
  EXPECT_NE(group(gpus).value(), nullptr);
  EXPECT_EQ(joined, (std::vector<int>{3, 1}));
  EXPECT_EQ(waited, timeout);
  fails = true;
  EXPECT_EQ(group(gpus).error().message, "GPU 1 did not come");
  EXPECT_EQ(group({at::kCPU, at::kCPU}).value(), nullptr);
  EXPECT_EQ(open_group("rank 0", gpus, "others use GPU-0a as well", timeout).value(), nullptr);
}

TEST(ReplicaBarrier, LetsAllGoOnTogetherAgainAndAgain) {
  constexpr int kPasses = 200;
  ReplicaBarrier barrier(3);
  std::array<std::atomic<int>, 3> passed{};
  std::atomic<int> apart{0};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      for (int pass = 0; pass < kPasses; ++pass) {
        if (!barrier.wait(std::chrono::seconds(60))) return;
        passed[i] = pass + 1;
        for (const auto& other : passed)  // nobody is a whole pass behind
          if (other < pass) ++apart;
      }
    });
  for (std::thread& each : threads) each.join();
  for (const auto& each : passed) EXPECT_EQ(each, kPasses);
  EXPECT_EQ(apart, 0);
}

TEST(ReplicaBarrier, EndsForAllWhenOneDoesNotComeOrEndsIt) {
  ReplicaBarrier late(2);
  EXPECT_EQ(late.wait(std::chrono::milliseconds(1)).error().code, Errc::timeout);
  EXPECT_EQ(late.wait(std::chrono::seconds(60)).error().code, Errc::peer_down);
  ReplicaBarrier ended(2);
  std::thread ender([&] { ended.end(); });
  EXPECT_EQ(ended.wait(std::chrono::seconds(60)).error().code, Errc::peer_down);
  ender.join();
}

}  // namespace gradient_group_test
}  // namespace grapevine
