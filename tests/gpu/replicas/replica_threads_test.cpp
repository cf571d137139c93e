#include "gpu/replicas/replica_threads.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "gpu/replicas/replicated_compute.hpp"

namespace grapevine {
namespace replica_threads_test {

TEST(ReplicaThreads, WaitReturnsWhenAllHaveEndedAndLetGo) {
  ReplicaThreads threads(3);
  const auto held = std::make_shared<int>(0);
  std::atomic<int> ended{0};
  for (int round = 0; round < 100; ++round) {
    for (std::size_t i = 0; i < threads.size(); ++i) threads.run(i, [held, &ended] { ++ended; });
    threads.wait();
    EXPECT_EQ(ended, 3 * (round + 1));
    EXPECT_EQ(held.use_count(), 1);
  }
}

TEST(ReplicaThreads, EndWaitsForTheWorkThatRuns) {
  std::atomic<bool> ended{false};
  {
    ReplicaThreads threads(1);
    threads.run(0, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

// Notes the threads that it computes on.
class ThreadNoting final : public Compute {
 public:
  explicit ThreadNoting(std::set<std::thread::id>& threads) : threads_(threads) {}
  std::int64_t dimension() const override { return 1; }
  FrozenTensor initial_parameters() const override { return {}; }
  FrozenTensor initial_buffers() const override { return {}; }
  Gradient gradient(GradientRequest request) override {
    threads_.insert(std::this_thread::get_id());
    Gradient result;
    result.step = request.step;
    result.value = FrozenTensor::freeze(at::ones({1}));
    return result;
  }
  Expected<Evaluation> evaluate(const FrozenTensor&, const FrozenTensor&) override {
    return Error{};
  }

 private:
  std::set<std::thread::id>& threads_;
};

// LibTorch has handles, workspaces and generators for each pair of a thread and a device.
TEST(ReplicaThreads, AReplicaAlwaysComputesOnTheSameThread) {
  constexpr std::size_t kReplicas = 4;
  std::vector<std::set<std::thread::id>> threads(kReplicas);
  std::vector<std::unique_ptr<Compute>> replicas;
  for (auto& each : threads) replicas.push_back(std::make_unique<ThreadNoting>(each));
  ReplicatedCompute compute(std::move(replicas), nullptr, std::chrono::seconds(60));
  for (Step step = 0; step < 100; ++step) {
    GradientRequest request;
    request.step = step;
    ASSERT_EQ(compute.gradient(std::move(request)).error, "");
  }
  std::set<std::thread::id> all;
  for (const auto& each : threads) {
    EXPECT_EQ(each.size(), 1U);
    all.insert(each.begin(), each.end());
  }
  EXPECT_EQ(all.size(), kReplicas);
}

}  // namespace replica_threads_test
}  // namespace grapevine
