// A worker with several devices against the same worker with one.
#include "gpu/replicas/replicated_compute.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/narrow_layers.hpp"
#include "tests/gpu/replicas/meeting_group.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace replicated_compute_test {

constexpr std::int64_t kBatch = 12;
constexpr Duration kTimeout = std::chrono::seconds(30);

TorchComputeConfig config_of(std::size_t replica, std::size_t replicas,
                             std::shared_ptr<GradientGroup> group = nullptr) {
  TorchComputeConfig config = tiny_config(tiny_layers, 1, 2, kBatch);
  config.replica = replica;
  config.replicas = replicas;
  config.group = std::move(group);
  return config;
}

std::unique_ptr<Compute> replicated(std::size_t replicas, std::shared_ptr<GradientGroup> group,
                                    const std::function<void(TorchComputeConfig&)>& change = {}) {
  std::vector<std::unique_ptr<Compute>> parts;
  const auto mean = group ? std::make_shared<HostMean>() : nullptr;
  for (std::size_t i = 0; i < replicas; ++i) {
    TorchComputeConfig config = config_of(i, replicas, group);
    config.host_mean = mean;
    if (change) change(config);
    parts.push_back(make_tiny(std::move(config)));
  }
  return std::make_unique<ReplicatedCompute>(std::move(parts), std::move(group), kTimeout, mean);
}

FrozenTensor point(const Compute& compute, std::int64_t seed) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  return FrozenTensor::freeze(at::randn({compute.dimension()}));
}

// What the replicas compute one by one, put together in double precision.
struct Oracle {
  at::Tensor value, buffers;
  double loss = 0, top1 = 0;
  std::int64_t samples = 0;
};

Oracle one_by_one(std::size_t replicas, const FrozenTensor& z, Step step) {
  Oracle sum;
  const double share = 1.0 / static_cast<double>(replicas);
  for (std::size_t i = 0; i < replicas; ++i) {
    const Gradient part = make_tiny(config_of(i, replicas))->gradient(tiny_request(z, step));
    const at::Tensor value = part.value.read().to(at::kDouble) * share;
    const at::Tensor buffers = part.buffers.read().to(at::kDouble) * share;
    sum.value = sum.value.defined() ? sum.value + value : value;
    sum.buffers = sum.buffers.defined() ? sum.buffers + buffers : buffers;
    sum.loss += part.loss * share;
    sum.top1 += part.top1 * share;
    sum.samples += part.samples;
  }
  return sum;
}

void expect_close(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor scale = expected.abs().clamp_min(1);
  EXPECT_LT(((found.to(at::kDouble) - expected).abs() / scale).max().item<double>(), 1e-6);
}

void expect_oracle(const Gradient& found, const Oracle& expected) {
  ASSERT_EQ(found.error, "");
  expect_close(found.value.read(), expected.value);
  expect_close(found.buffers.read(), expected.buffers);
  EXPECT_NEAR(found.loss, expected.loss, 1e-9);
  EXPECT_NEAR(found.top1, expected.top1, 1e-9);
  EXPECT_EQ(found.samples, expected.samples);
}

TEST(ReplicatedCompute, IsTheMeanOfItsReplicas) {
  for (const std::size_t replicas : {2U, 3U, 4U}) {
    SCOPED_TRACE(replicas);
    const auto group = std::make_shared<MeetingGroup>(replicas);
    const auto host = replicated(replicas, nullptr);
    const auto device = replicated(replicas, group);
    const auto lazy = replicated(
        replicas, std::make_shared<MeetingGroup>(replicas), [](TorchComputeConfig& config) {
          config.runtime = std::make_shared<LazyDevice>(77 + config.replica);
        });
    for (Step step = 0; step < 4; ++step) {
      const FrozenTensor z = point(*host, step);
      const Oracle expected = one_by_one(replicas, z, step);
      EXPECT_EQ(expected.samples, kBatch);
      expect_oracle(host->gradient(tiny_request(z, step)), expected);
      expect_oracle(device->gradient(tiny_request(z, step)), expected);
      expect_oracle(lazy->gradient(tiny_request(z, step)), expected);
      EXPECT_TRUE(z.sole_owner());
    }
    EXPECT_EQ(group->passes(), 4);
  }
}

// A model of d parameters, each of which has its own share in the result.
template <std::int64_t kParameters>
class Few : public torch::nn::Module {
 public:
  Few() : w_(register_parameter("w", at::linspace(0.5, 1.5, kParameters))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor shares = at::linspace(-1, 2, kParameters);
    return at::cat({x, x * 2}, 1) * (w_ * shares).sum();
  }

 private:
  at::Tensor w_;
};

template <std::int64_t kParameters>
torch::nn::Sequential few_layers() {
  return torch::nn::Sequential(std::make_shared<Few<kParameters>>());
}

struct OnDevices {
  std::vector<std::shared_ptr<LazyDevice>> devices;
  std::unique_ptr<Compute> compute;
};

OnDevices on_lazy_devices(std::size_t replicas, const std::shared_ptr<GradientGroup>& group,
                          const std::function<void(TorchComputeConfig&)>& change) {
  OnDevices made;
  made.compute = replicated(replicas, group, [&](TorchComputeConfig& config) {
    change(config);
    made.devices.push_back(std::make_shared<LazyDevice>(31 + config.replica));
    made.devices.back()->pin_with(*made.devices.front());
    config.runtime = made.devices.back();
  });
  return made;
}

// Whole vectors cross the links of replicas whose gradients are summed on the host.
TEST(ReplicatedCompute, SlicesGiveTheSameBitsForFewerBytes) {
  using Layers = torch::nn::Sequential (*)();
  for (const std::size_t replicas : {2U, 3U, 4U})
    for (const Layers layers :
         {Layers{tiny_layers}, Layers{few_layers<1>}, Layers{few_layers<3>}, Layers{few_layers<4>},
          Layers{few_layers<7>}, Layers{few_layers<1001>}}) {
      const auto change = [layers](TorchComputeConfig& config) {
        config.model = tiny_factory(layers);
      };
      const auto group = std::make_shared<MeetingGroup>(replicas);
      const auto reference = replicated(replicas, std::make_shared<MeetingGroup>(replicas), change);
      const OnDevices sliced = on_lazy_devices(replicas, group, change);
      const OnDevices whole = on_lazy_devices(replicas, nullptr, change);
      // Three replicas without pinned memory.
      for (const auto& device : sliced.devices) device->pages = replicas != 3;
      const std::int64_t d = reference->dimension();
      SCOPED_TRACE(testing::Message() << replicas << " replicas, " << d << " parameters");

      constexpr Step kSteps = 3;
      std::vector<std::pair<FrozenTensor, FrozenTensor>> values;  // found, expected
      std::string calls;
      for (Step step = 0; step < kSteps; ++step) {
        const FrozenTensor z = point(*reference, step);
        const Gradient expected = reference->gradient(tiny_request(z, step));
        const Gradient found = sliced.compute->gradient(tiny_request(z, step));
        const Gradient other = whole.compute->gradient(tiny_request(z, step));
        ASSERT_EQ(expected.error + found.error + other.error, "");
        EXPECT_TRUE(found.value.sole_owner());
        values.emplace_back(found.value, expected.value);
        EXPECT_EQ(found.loss, expected.loss);
        EXPECT_TRUE(z.sole_owner());
        calls += "gr";
      }
      for (const auto& [found, expected] : values)
        EXPECT_TRUE(at::equal(found.read(), expected.read()));
      // Batches, buffers and figures cross in both.
      for (std::size_t i = 0; i < replicas; ++i) {
        const auto slice = static_cast<std::size_t>(flat_slice(d, i, replicas).size);
        EXPECT_LE(slice, (static_cast<std::size_t>(d) + replicas - 1) / replicas);
        const std::size_t saved =
            (static_cast<std::size_t>(d) - slice) * sizeof(float) * std::size_t{kSteps};
        const LazyDevice &few = *sliced.devices[i], &all = *whole.devices[i];
        EXPECT_EQ(all.uploaded_bytes - few.uploaded_bytes, saved) << "replica " << i;
        EXPECT_EQ(all.downloaded_bytes - few.downloaded_bytes, saved) << "replica " << i;
        EXPECT_EQ(group->calls(i), calls);
      }
    }
}

// Without batch norm, a batch in slices is the batch: the samples are the same, and so the mean; in
// whatever way samples are put together.
TEST(ReplicatedCompute, ComputesWhatOneDeviceWould) {
  for (const bool by_length : {false, true})
    for (const std::size_t replicas : {2U, 4U}) {
      SCOPED_TRACE(testing::Message() << replicas << " replicas, by length " << by_length);
      DataInfo info = tiny_info();
      info.by_length = by_length;
      const auto plain = [&info](TorchComputeConfig& config) {
        config.model = tiny_factory(plain_layers);
        config.data = std::make_shared<const TinyData>(info);
      };
      const auto several = replicated(replicas, nullptr, plain);
      TorchComputeConfig config = config_of(0, 1);
      plain(config);
      const auto one = make_tiny(std::move(config));
      for (Step step = 0; step < 5; ++step) {
        const FrozenTensor z = point(*one, step);
        const Gradient expected = one->gradient(tiny_request(z, step));
        const Gradient found = several->gradient(tiny_request(z, step));
        ASSERT_EQ(found.error + expected.error, "");
        expect_close(found.value.read(), expected.value.read().to(at::kDouble));
        EXPECT_NEAR(found.loss, expected.loss, 1e-6);
        EXPECT_NEAR(found.top1, expected.top1, 1e-6);
        EXPECT_EQ(found.samples, kBatch);
      }
    }
}

TEST(ReplicatedCompute, EqualRequestsGiveEqualBits) {
  const auto compute = replicated(3, nullptr);
  const FrozenTensor z = point(*compute, 1);
  const Gradient first = compute->gradient(tiny_request(z, 2));
  for (int i = 0; i < 20; ++i) {
    const Gradient again = compute->gradient(tiny_request(z, 2));
    ASSERT_EQ(again.error, "");
    EXPECT_TRUE(at::equal(first.value.read(), again.value.read()));
    EXPECT_EQ(first.loss, again.loss);
  }
}

TEST(ReplicatedCompute, ReusesRecycledMemory) {
  const auto compute = replicated(2, nullptr);
  const FrozenTensor z = point(*compute, 1);
  GradientRequest request = tiny_request(z);
  request.recycled = FrozenTensor::freeze(at::full({compute->dimension()}, 3.0F));
  const void* memory = request.recycled.raw();
  EXPECT_EQ(compute->gradient(std::move(request)).value.raw(), memory);
}

enum class Sum { on_host, in_group, in_group_of_slices };

// One replica cannot read its batch; the others are on their way into the group, and wait there:
// for its slice of the parameters, where they are gathered. The next step begins anew.
TEST(ReplicatedCompute, AFailureEndsTheOthersWait) {
  for (const Sum sum : {Sum::on_host, Sum::in_group, Sum::in_group_of_slices}) {
    SCOPED_TRACE(static_cast<int>(sum));
    const bool on_devices = sum != Sum::on_host;
    std::atomic<bool> broken{false};
    const auto group = on_devices ? std::make_shared<MeetingGroup>(3) : nullptr;
    const auto compute = replicated(3, group, [&broken, sum](TorchComputeConfig& config) {
      if (sum == Sum::in_group_of_slices) config.runtime = std::make_shared<LazyDevice>();
      config.name = "rank 4, replica " + std::to_string(config.replica);
      if (config.replica == 1)
        config.data = std::make_shared<const TinyData>(
            tiny_info(), [&broken](const std::vector<std::int64_t>&) -> Expected<void> {
              if (broken) return bad_input("image 7 is cut short");
              return {};
            });
    });
    const FrozenTensor z = point(*compute, 1);
    ASSERT_EQ(compute->gradient(tiny_request(z, 0)).error, "");
    broken = true;
    // Not the next step, whose batch is on the device already.
    EXPECT_EQ(compute->gradient(tiny_request(z, 10)).error,
              "rank 4, replica 1: image 7 is cut short");
    EXPECT_TRUE(z.sole_owner());
    broken = false;
    EXPECT_EQ(compute->gradient(tiny_request(z, 20)).error == "", !on_devices);
    if (group) {
      EXPECT_TRUE(group->aborted());
      EXPECT_EQ(group->calls(0), sum == Sum::in_group ? "rrr" : "grgg");
    }
  }
}

// Says nothing until it is aborted.
class SilentGroup final : public GradientGroup {
 public:
  Expected<void> all_gather(std::size_t replica, at::Tensor& flat) override {
    return all_reduce_mean(replica, flat);
  }
  Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) override {
    at::Tensor same = flat;
    return all_reduce_mean(replica, same);
  }
  Expected<void> all_reduce_mean(std::size_t, at::Tensor&) override {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return aborted_; });
    return Error{Errc::peer_down, "the group was aborted"};
  }
  void abort() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool aborted_ = false;
};

TEST(ReplicatedCompute, AStepThatTakesTooLongIsGivenUp) {
  for (const bool slices : {false, true}) {
    const auto group = std::make_shared<SilentGroup>();
    std::vector<std::unique_ptr<Compute>> parts;
    for (std::size_t i = 0; i < 2; ++i) {
      TorchComputeConfig config = config_of(i, 2, group);
      if (slices) config.runtime = std::make_shared<LazyDevice>();
      parts.push_back(make_tiny(std::move(config)));
    }
    ReplicatedCompute compute(std::move(parts), group, std::chrono::milliseconds(50));
    EXPECT_EQ(compute.gradient(tiny_request(compute.initial_parameters())).error,
              "rank 1: the group was aborted");
  }
}

// Compute must not throw; where one does, that is an error like others.
class Throwing final : public Compute {
 public:
  std::int64_t dimension() const override { return 1; }
  FrozenTensor initial_parameters() const override { return {}; }
  FrozenTensor initial_buffers() const override { return {}; }
  Gradient gradient(GradientRequest) override { throw std::runtime_error("out of order"); }
  Expected<Evaluation> evaluate(const FrozenTensor&, const FrozenTensor&) override {
    return Error{};
  }
};

TEST(ReplicatedCompute, AnExceptionIsAnErrorOfTheStep) {
  std::vector<std::unique_ptr<Compute>> parts;
  parts.push_back(make_tiny(config_of(0, 2)));
  parts.push_back(std::make_unique<Throwing>());
  ReplicatedCompute compute(std::move(parts), nullptr, kTimeout);
  EXPECT_EQ(compute.gradient(tiny_request(compute.initial_parameters())).error,
            "replica 1: out of order");
}

// A gradient that overflows in one replica does so in all, and all compute it again: else they
// would meet in different passes. Factors are powers of two, so nothing is lost.
TEST(ReplicatedCompute, AllComputeAnOverflowAgain) {
  const auto make = [](const std::shared_ptr<GradientGroup>& group, bool scale_loss, bool lazy) {
    return replicated(2, group, [scale_loss, lazy](TorchComputeConfig& config) {
      if (lazy) config.runtime = std::make_shared<LazyDevice>(5 + config.replica);
      const bool narrow = config.replica == 0;
      config.model = tiny_factory(narrow ? narrow_layers<100> : narrow_layers<1'000'000'000>);
      config.scale_loss = scale_loss;
    });
  };
  for (const bool lazy : {false, true}) {
    const auto group = std::make_shared<MeetingGroup>(2);
    const auto plain = make(std::make_shared<MeetingGroup>(2), false, false);
    const auto scaled = make(group, true, lazy);
    for (Step step = 0; step < 3; ++step) {
      const Gradient a = plain->gradient(tiny_request(plain->initial_parameters(), step));
      const Gradient b = scaled->gradient(tiny_request(plain->initial_parameters(), step));
      ASSERT_EQ(a.error + b.error, "");
      EXPECT_TRUE(at::equal(a.value.read(), b.value.read()));
    }
    EXPECT_GT(group->passes(), 3);
  }
}

}  // namespace replicated_compute_test
}  // namespace grapevine
