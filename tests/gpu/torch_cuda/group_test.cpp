// Replicas whose gradients are summed by NCCL. Needs two GPUs.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "gpu/replicas/gradient_group.hpp"
#include "gpu/replicas/replicated_compute.hpp"
#include "tests/gpu/tiny_compute.hpp"
#include "tests/gpu/torch_cuda/gpu_here.hpp"

namespace grapevine {
namespace {

constexpr Duration kTimeout = std::chrono::seconds(60);

class NcclReplicas : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = too_few_gpus(2); !why.empty()) GTEST_SKIP() << why;
    if (cuda_group_join() == nullptr) GTEST_SKIP() << "this build has no NCCL";
    auto group = open_group("rank 0", kDevices, "", kTimeout);
    ASSERT_TRUE(group.ok()) << group.error().message;
    group_ = *std::move(group);
    ASSERT_NE(group_, nullptr);
  }

  // An odd number of parameters: the second replica's slice is shorter.
  static torch::nn::Sequential odd_layers() {
    return torch::nn::Sequential(torch::nn::Linear(torch::nn::LinearOptions(3, 9).bias(false)),
                                 torch::nn::Tanh(), torch::nn::Linear(9, 6));
  }
  static TorchComputeConfig config_of(std::size_t replica) {
    TorchComputeConfig config = tiny_config(odd_layers, 0, 2, 12);
    config.replica = replica;
    config.replicas = 2;
    config.timeout = kTimeout;
    return config;
  }
  std::unique_ptr<ReplicatedCompute> replicated(
      const std::shared_ptr<const DataSet>& data_of_the_second = nullptr, bool grouped = true) {
    std::vector<std::unique_ptr<Compute>> replicas;
    const auto mean = std::make_shared<HostMean>();
    const auto group = grouped ? group_ : nullptr;
    std::shared_ptr<DeviceRuntime> lead;
    for (std::size_t i = 0; i < 2; ++i) {
      TorchComputeConfig config = config_of(i);
      config.runtime = open_device(kDevices[i]).value();
      config.group = group;
      config.host_mean = mean;
      if (i == 0) lead = config.runtime;
      if (i == 1 && data_of_the_second) config.data = data_of_the_second;
      replicas.push_back(make_tiny(std::move(config)));
    }
    return std::make_unique<ReplicatedCompute>(std::move(replicas), group, 3 * kTimeout, mean,
                                               std::move(lead));
  }

  const std::vector<at::Device> kDevices = {{at::kCUDA, 0}, {at::kCUDA, 1}};
  std::shared_ptr<GradientGroup> group_;
};

TEST_F(NcclReplicas, ComputeWhatOneCpuWould) {
  const auto several = replicated();
  const auto one = make_tiny(tiny_config(odd_layers, 0, 2, 12));
  for (Step step = 0; step < 20; ++step) {
    at::manual_seed(static_cast<std::uint64_t>(step));
    const FrozenTensor z = FrozenTensor::freeze(at::randn({one->dimension()}));
    const Gradient expected = one->gradient(tiny_request(z, step));
    const Gradient found = several->gradient(tiny_request(z, step));
    ASSERT_EQ(found.error, "");
    EXPECT_TRUE(at::allclose(found.value.read(), expected.value.read(), 1e-4, 1e-6));
  }
}

// A peer on the first GPU writes z in a stream of its own, and uses the gradient there.
TEST_F(NcclReplicas, ComputeAtAModelOnTheFirstGpu) {
  const auto peer = open_device(kDevices[0]).value();
  const auto one = make_tiny(tiny_config(odd_layers, 0, 2, 12));
  for (const bool grouped : {true, false}) {
    const auto several = replicated(nullptr, grouped);
    for (Step step = 0; step < 20; ++step) {
      at::manual_seed(static_cast<std::uint64_t>(step));
      const FrozenTensor z = FrozenTensor::freeze(at::randn({one->dimension()}));
      const auto scope = peer->enter(Stream::exchange);
      const FrozenTensor here = FrozenTensor::copy_of(z.read().to(kDevices[0]));
      const Gradient expected = one->gradient(tiny_request(z, step));
      const Gradient found = several->gradient(tiny_request(here, step));
      ASSERT_EQ(found.error, "");
      ASSERT_EQ(found.value.device(), kDevices[0]);
      EXPECT_TRUE(at::allclose(found.value.read().cpu(), expected.value.read(), 1e-4, 1e-6));
    }
  }
}

// Each thread plays a process: it has a group and a replica of its own, and nothing of the other.
// In odd steps z is on the GPU of the lead, and the group gives it to the member.
TEST_F(NcclReplicas, OfSeveralProcessesComputeWhatOneCpuWould) {
  const ProcessGroups groups = cuda_process_groups();
  const auto id = groups.make_id();
  ASSERT_TRUE(id.ok()) << id.error().message;
  constexpr Step kSteps = 20;
  const auto one = make_tiny(tiny_config(odd_layers, 0, 2, 12));
  const auto z_of = [&](Step step) {
    const auto seed = static_cast<std::uint64_t>(step);
    const at::Generator generator = at::detail::createCPUGenerator(seed);
    return FrozenTensor::freeze(at::randn({one->dimension()}, generator));
  };
  const auto compute = [&](std::size_t replica) {
    std::vector<Gradient> gradients;
    auto group = groups.join(*id, kDevices[replica].index(), replica, 2, kTimeout, nullptr);
    EXPECT_TRUE(group.ok()) << group.error().message;
    if (!group.ok()) return gradients;
    TorchComputeConfig config = config_of(replica);
    config.runtime = open_device(kDevices[replica]).value();
    config.group = *group;
    config.spans_processes = true;
    const auto own = make_tiny(std::move(config));
    for (Step step = 0; step < kSteps; ++step) {
      GradientRequest request = tiny_request(z_of(step), step);
      if (step % 2 == 1 && replica == 0)
        request.z = FrozenTensor::copy_of(request.z.read().to(kDevices[0]));
      else if (step % 2 == 1)
        request.z = {};
      gradients.push_back(own->gradient(std::move(request)));
    }
    return gradients;
  };
  auto member = std::async(std::launch::async, compute, 1);
  const std::vector<Gradient> lead = compute(0);
  const std::vector<Gradient> others = member.get();
  ASSERT_EQ(lead.size(), static_cast<std::size_t>(kSteps));
  ASSERT_EQ(others.size(), lead.size());
  for (Step step = 0; step < kSteps; ++step) {
    const Gradient& found = lead[static_cast<std::size_t>(step)];
    ASSERT_EQ(found.error, "");
    EXPECT_FALSE(others[static_cast<std::size_t>(step)].value.defined());
    EXPECT_EQ(found.value.device().is_cpu(), step % 2 == 0);
    // Both see the data of their slices: the mean is that of the whole batch.
    const Gradient expected = one->gradient(tiny_request(z_of(step), step));
    EXPECT_TRUE(at::allclose(found.value.read().cpu(), expected.value.read(), 1e-4, 1e-6));
  }
}

// Beside an evaluation that takes and locks memory on the same GPU.
TEST_F(NcclReplicas, AreNotHeldUpByEvaluation) {
  const auto several = replicated();
  std::atomic<bool> end{false};
  std::thread evaluating([&] {
    while (!end) {
      TorchComputeConfig config = tiny_config(plain_layers);
      config.runtime = open_device(kDevices[0]).value();
      const auto fresh = make_tiny(std::move(config));
      EXPECT_TRUE(fresh->evaluate(fresh->initial_parameters(), {}).ok());
    }
  });
  for (Step step = 0; step < 200; ++step)
    ASSERT_EQ(several->gradient(tiny_request(several->initial_parameters(), step)).error, "");
  end = true;
  evaluating.join();
}

// One replica fails on its way into the group: the other, which is in it, returns, and so does
// everything that ends the group.
TEST_F(NcclReplicas, AnAbortInMidStepEndsTheStep) {
  std::atomic<bool> broken{false};
  const auto several = replicated(std::make_shared<const TinyData>(
      tiny_info(), [&](const std::vector<std::int64_t>&) -> Expected<void> {
        if (broken) return bad_input("image 7 is cut short");
        return {};
      }));
  const FrozenTensor z = several->initial_parameters();
  ASSERT_EQ(several->gradient(tiny_request(z, 0)).error, "");
  broken = true;
  std::string error;
  for (Step step = 1; step < 4 && error.empty(); ++step)
    error = several->gradient(tiny_request(z, step)).error;
  EXPECT_NE(error.find("image 7 is cut short"), std::string::npos) << error;
  EXPECT_NE(several->gradient(tiny_request(z, 5)).error, "") << "the group is gone";
  EXPECT_FALSE(device_threads_left_behind());
}

}  // namespace
}  // namespace grapevine
