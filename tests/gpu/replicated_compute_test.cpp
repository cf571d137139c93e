// A worker with several devices against the same worker with one.
#include "gpu/replicated_compute.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/narrow_layers.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kBatch = 12;

// Sums on the "devices": waits for all replicas, as a collective does.
class MeetingGroup final : public GradientGroup {
 public:
  explicit MeetingGroup(std::size_t size) : gradients_(size) {}

  Expected<void> mean(std::size_t replica, at::Tensor& gradient) override {
    std::unique_lock<std::mutex> lock(mutex_);
    gradients_[replica] = gradient;
    const int pass = pass_;
    if (++here_ == gradients_.size()) {
      meet();
      changed_.notify_all();
    }
    const bool over = changed_.wait_for(lock, std::chrono::seconds(30),
                                        [&] { return pass_ != pass || aborted_; });
    if (aborted_) return Error{Errc::peer_down, "aborted"};
    if (!over) return Error{Errc::timeout, "a replica did not come"};
    return {};
  }
  void abort() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }
  int passes() const { return pass_; }
  bool aborted() const { return aborted_; }

 private:
  void meet() {
    at::Tensor sum = gradients_[0].clone();
    for (std::size_t i = 1; i < gradients_.size(); ++i) sum.add_(gradients_[i]);
    sum.div_(static_cast<double>(gradients_.size()));
    for (at::Tensor& gradient : gradients_) gradient.copy_(sum);
    here_ = 0;
    ++pass_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> gradients_;
  std::size_t here_ = 0;
  int pass_ = 0;
  bool aborted_ = false;
};

TorchComputeConfig config_of(std::size_t replica, std::size_t replicas, Rank rank = 0) {
  const auto parts = static_cast<std::int64_t>(replicas);
  return tiny_config(tiny_layers, static_cast<Rank>(rank * parts + static_cast<Rank>(replica)),
                     parts, kBatch / parts);
}

std::unique_ptr<Compute> replicated(std::size_t replicas, std::shared_ptr<GradientGroup> group,
                                    std::uint64_t lazy_seed = 0) {
  std::vector<std::unique_ptr<Compute>> parts;
  for (std::size_t i = 0; i < replicas; ++i) {
    TorchComputeConfig config = config_of(i, replicas);
    config.group = group;
    config.replica = i;
    if (lazy_seed != 0) config.runtime = std::make_shared<LazyDevice>(lazy_seed + i);
    parts.push_back(make_tiny(std::move(config)));
  }
  return std::make_unique<ReplicatedCompute>(std::move(parts), std::move(group));
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
    const auto lazy = replicated(replicas, std::make_shared<MeetingGroup>(replicas), 77);
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

// Without batch norm, a batch in parts is the batch: the samples are the same, and so the mean.
TEST(ReplicatedCompute, ComputesWhatOneDeviceWould) {
  for (const std::size_t replicas : {2U, 4U}) {
    std::vector<std::unique_ptr<Compute>> parts;
    const auto ranks = static_cast<std::int64_t>(2 * replicas);
    for (std::size_t i = 0; i < replicas; ++i)
      parts.push_back(
          make_tiny(tiny_config(plain_layers, static_cast<Rank>(replicas + i), ranks, 12 / 4)));
    ReplicatedCompute several(std::move(parts), nullptr);
    const auto batch = static_cast<std::int64_t>(replicas) * 3;
    const auto one = make_tiny(tiny_config(plain_layers, 1, 2, batch));
    for (Step step = 0; step < 5; ++step) {
      const FrozenTensor z = point(*one, step);
      const Gradient expected = one->gradient(tiny_request(z, step));
      const Gradient found = several.gradient(tiny_request(z, step));
      ASSERT_EQ(found.error + expected.error, "");
      expect_close(found.value.read(), expected.value.read().to(at::kDouble));
      EXPECT_NEAR(found.loss, expected.loss, 1e-6);
      EXPECT_NEAR(found.top1, expected.top1, 1e-9);
      EXPECT_EQ(found.samples, batch);
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

// One replica cannot read its batch; the others are on their way into the group, and wait there.
TEST(ReplicatedCompute, AFailureEndsTheOthersWait) {
  for (const bool on_devices : {false, true}) {
    SCOPED_TRACE(on_devices);
    bool broken = false;
    const auto group = on_devices ? std::make_shared<MeetingGroup>(3) : nullptr;
    std::vector<std::unique_ptr<Compute>> parts;
    for (std::size_t i = 0; i < 3; ++i) {
      TorchComputeConfig config = config_of(i, 3);
      config.name = "rank 4, replica " + std::to_string(i);
      config.group = group;
      config.replica = i;
      if (i == 1)
        config.data = std::make_shared<const TinyData>(
            tiny_info(), [&broken](const std::vector<std::int64_t>&) -> Expected<void> {
              if (broken) return bad_input("image 7 is cut short");
              return {};
            });
      parts.push_back(make_tiny(std::move(config)));
    }
    ReplicatedCompute compute(std::move(parts), group);
    const FrozenTensor z = point(compute, 1);
    ASSERT_EQ(compute.gradient(tiny_request(z, 0)).error, "");
    broken = true;
    // The batch after the first may have been read ahead.
    std::string error;
    for (Step step = 1; step < 10 && error.empty(); ++step)
      error = compute.gradient(tiny_request(z, step)).error;
    EXPECT_EQ(error, "rank 4, replica 1: image 7 is cut short");
    if (group) {
      EXPECT_TRUE(group->aborted());
    }
    EXPECT_TRUE(z.sole_owner());
  }
}

// A gradient that overflows in one replica does so in all, and all compute it again: else they
// would meet in different passes. Factors are powers of two, so nothing is lost.
TEST(ReplicatedCompute, AllComputeAnOverflowAgain) {
  const auto make = [](const std::shared_ptr<GradientGroup>& group, bool scale_loss) {
    std::vector<std::unique_ptr<Compute>> parts;
    for (std::size_t i = 0; i < 2; ++i) {
      TorchComputeConfig config = config_of(i, 2);
      config.model = tiny_factory(i == 0 ? narrow_layers<100> : narrow_layers<1'000'000'000>);
      config.group = group;
      config.replica = i;
      config.scale_loss = scale_loss;
      parts.push_back(make_tiny(std::move(config)));
    }
    return std::make_unique<ReplicatedCompute>(std::move(parts), group);
  };
  const auto group = std::make_shared<MeetingGroup>(2);
  const auto plain = make(std::make_shared<MeetingGroup>(2), false);
  const auto scaled = make(group, true);
  for (Step step = 0; step < 3; ++step) {
    const Gradient a = plain->gradient(tiny_request(plain->initial_parameters(), step));
    const Gradient b = scaled->gradient(tiny_request(plain->initial_parameters(), step));
    ASSERT_EQ(a.error + b.error, "");
    EXPECT_TRUE(at::equal(a.value.read(), b.value.read()));
  }
  EXPECT_GT(group->passes(), 3);
}

}  // namespace
}  // namespace grapevine
