// Replicas that reduce buckets of their gradients while the backward pass runs, against the
// reduction of whole gradients.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu/replicas/replicated_compute.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/fake_device/fake_group.hpp"
#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/narrow_layers.hpp"
#include "tests/gpu/replicas/meeting_group.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace bucketed_reduction_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kBatch = 12;
constexpr std::int64_t kWhole = std::int64_t{1} << 40;
constexpr Duration kTimeout = std::chrono::seconds(60);

using Change = std::function<void(TorchComputeConfig&)>;

std::unique_ptr<Compute> replicated(std::size_t replicas,
                                    const std::shared_ptr<GradientGroup>& group,
                                    std::int64_t bucket_bytes, const Change& change) {
  std::vector<std::unique_ptr<Compute>> parts;
  const auto mean = std::make_shared<HostMean>();
  for (std::size_t i = 0; i < replicas; ++i) {
    TorchComputeConfig config = tiny_config(tiny_layers, 1, 2, kBatch);
    config.name = "replica " + std::to_string(i);
    config.replica = i;
    config.replicas = replicas;
    config.group = group;
    config.host_mean = mean;
    config.bucket_bytes = bucket_bytes;
    change(config);
    parts.push_back(make_tiny(std::move(config)));
  }
  return std::make_unique<ReplicatedCompute>(std::move(parts), group, kTimeout, mean);
}

FrozenTensor point(const Compute& compute, Step step) {
  at::manual_seed(static_cast<std::uint64_t>(step) + 9);
  return FrozenTensor::freeze(at::randn({compute.dimension()}));
}

// A parameter that the output of some replicas does not depend on.
class Idle : public torch::nn::Module {
 public:
  explicit Idle(bool idle) : idle_(idle) { w_ = register_parameter("idle", at::ones({4})); }
  at::Tensor forward(const at::Tensor& x) { return idle_ ? x : x * w_.mean(); }

 private:
  const bool idle_;
  at::Tensor w_;
};

std::function<torch::nn::Sequential()> layers_idle_in(bool idle) {
  return [idle] {
    return torch::nn::Sequential(torch::nn::Linear(3, 5), torch::nn::Tanh(),
                                 std::make_shared<Idle>(idle), torch::nn::Linear(5, 6),
                                 std::make_shared<Idle>(!idle));
  };
}

struct Case {
  const char* name;
  Change change;
};

std::vector<Case> cases() {
  return {
      {"batch norm", [](TorchComputeConfig&) {}},
      {"dropout",
       [](TorchComputeConfig& config) { config.model = tiny_factory(tiny_layers_with_dropout); }},
      {"images in channels last",
       [](TorchComputeConfig& config) {
         config.model = tiny_factory(tiny_conv_layers);
         config.data = tiny_images();
         config.channels_last = true;
       }},
      {"bf16", [](TorchComputeConfig& config) { config.precision = Precision::bf16; }},
      {"several passes",
       [](TorchComputeConfig& config) {
         config.model = tiny_factory(plain_layers);
         config.passes = 3;
       }},
      {"an overflow in one replica",
       [](TorchComputeConfig& config) {
         const bool narrow = config.replica == 0;
         config.model = tiny_factory(narrow ? narrow_layers<100> : narrow_layers<1'000'000'000>);
         config.scale_loss = true;
       }},
      {"other graphs in each replica",
       [](TorchComputeConfig& config) {
         config.model = tiny_factory(layers_idle_in(config.replica == 0));
       }},
  };
}

// The group adds the replicas of each element in one order here, as it does for whole gradients.
TEST(BucketedReduction, HasTheBitsOfWholeGradients) {
  at::set_num_threads(1);
  for (const Case& each : cases())
    for (const std::size_t replicas : {2U, 4U})
      for (const bool lazy : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << each.name << ", " << replicas << " replicas, lazy " << lazy);
        const auto whole =
            replicated(replicas, std::make_shared<MeetingGroup>(replicas), kWhole, each.change);
        const auto group = std::make_shared<MeetingGroup>(replicas);
        const auto buckets = replicated(replicas, group, 64, [&](TorchComputeConfig& config) {
          each.change(config);
          if (lazy) config.runtime = std::make_shared<LazyDevice>(41 + config.replica);
        });
        for (Step step = 0; step < 3; ++step) {
          const FrozenTensor z = point(*whole, step);
          const Gradient expected = whole->gradient(tiny_request(z, step));
          const Gradient found = buckets->gradient(tiny_request(z, step));
          ASSERT_EQ(expected.error + found.error, "");
          EXPECT_TRUE(at::equal(found.value.read(), expected.value.read())) << "step " << step;
          EXPECT_EQ(found.loss, expected.loss);
          EXPECT_TRUE(z.sole_owner());
        }
        EXPECT_GE(group->passes(), 6) << "at least two buckets in each step";
        for (std::size_t i = 1; i < replicas; ++i) {
          EXPECT_EQ(group->calls(i), group->calls(0));
          EXPECT_EQ(group->sizes(i), group->sizes(0)) << "another order of buckets";
        }
      }
}

// Notes in `log` when the backward pass comes by.
class Milestone : public torch::nn::Module {
 public:
  explicit Milestone(std::function<void()> pass) : pass_(std::move(pass)) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x * 1;
    if (y.requires_grad()) y.register_hook([this](const at::Tensor&) { pass_(); });
    return y;
  }

 private:
  const std::function<void()> pass_;
};

TEST(BucketedReduction, BeginsWhileTheBackwardPassRuns) {
  std::vector<std::string> log;  // of replica 0
  const auto group = std::make_shared<MeetingGroup>(2);
  group->on_reduce = [&log](std::size_t replica) {
    if (replica == 0) log.emplace_back("reduce");
  };
  const auto compute = replicated(2, group, 1, [&log](TorchComputeConfig& config) {
    config.model = tiny_factory([&log, noted = config.replica == 0] {
      const auto note = [&log, noted] {
        if (noted) log.emplace_back("pass");
      };
      return torch::nn::Sequential(torch::nn::Linear(3, 5), std::make_shared<Milestone>(note),
                                   torch::nn::Linear(5, 6));
    });
  });
  log.clear();
  ASSERT_EQ(compute->gradient(tiny_request(compute->initial_parameters())).error, "");
  // Bias and weight of the second layer, then of the first.
  EXPECT_EQ(log, (std::vector<std::string>{"reduce", "reduce", "pass", "reduce", "reduce"}));
}

// Each replica downloads what its slice has of a bucket. That of the second one is a part of the
// second layer, whose buckets come first.
TEST(BucketedReduction, ComesDownWhileTheBackwardPassRuns) {
  std::vector<std::shared_ptr<LazyDevice>> devices;
  for (std::size_t i = 0; i < 2; ++i) devices.push_back(std::make_shared<LazyDevice>());
  devices[0]->pin_with(*devices[1]);
  std::vector<std::int64_t> before_pass(2, -1);
  const auto downloads = [&devices](std::size_t replica) {
    const auto& log = devices[replica]->log;
    return std::count(log.begin(), log.end(), "copy download");
  };
  const auto compute =
      replicated(2, std::make_shared<MeetingGroup>(2), 1, [&](TorchComputeConfig& config) {
        config.runtime = devices[config.replica];
        config.model = tiny_factory([&before_pass, &downloads, replica = config.replica] {
          const auto note = [&before_pass, &downloads, replica] {
            before_pass[replica] = downloads(replica);
          };
          return torch::nn::Sequential(torch::nn::Linear(3, 5), std::make_shared<Milestone>(note),
                                       torch::nn::Linear(5, 6));
        });
      });
  for (const auto& device : devices) device->log.clear();
  ASSERT_EQ(compute->gradient(tiny_request(compute->initial_parameters())).error, "");
  EXPECT_EQ(before_pass, (std::vector<std::int64_t>{1, 2}));
  constexpr std::int64_t kFigures = 1;
  EXPECT_EQ(downloads(0), 3 + kFigures)
      << "of the weight of the second layer, and both of the first";
  EXPECT_EQ(downloads(1), 2 + kFigures);
}

// After the first bucket, in the middle of a backward pass.
TEST(BucketedReduction, AFailureInTheMiddleEndsTheStepOfAll) {
  for (const bool lazy : {false, true}) {
    std::atomic<bool> broken{false};
    const auto group = std::make_shared<MeetingGroup>(3);
    const auto compute = replicated(3, group, 1, [&broken, lazy](TorchComputeConfig& config) {
      if (lazy) config.runtime = std::make_shared<LazyDevice>();
      config.model = tiny_factory([&broken, breaks = config.replica == 1] {
        const auto fail = [&broken, breaks] {
          if (breaks && broken) throw std::runtime_error("the GPU has fallen off the bus");
        };
        return torch::nn::Sequential(torch::nn::Linear(3, 5), std::make_shared<Milestone>(fail),
                                     torch::nn::Linear(5, 6));
      });
    });
    const FrozenTensor z = compute->initial_parameters();
    ASSERT_EQ(compute->gradient(tiny_request(z, 0)).error, "");
    const std::size_t before = group->sizes(0).size();
    broken = true;
    const std::string error = compute->gradient(tiny_request(z, 1)).error;
    EXPECT_THAT(error, HasSubstr("replica 1: "));
    EXPECT_THAT(error, HasSubstr("the GPU has fallen off the bus"));
    EXPECT_TRUE(group->aborted());
    EXPECT_EQ(group->sizes(1).size(), before + 2) << "buckets of the second layer";
    EXPECT_LE(group->sizes(0).size(), before + 3) << "no more collectives after an error";
    broken = false;
    EXPECT_NE(compute->gradient(tiny_request(z, 2)).error, "") << "the group is gone";
  }
}

// ---- on devices whose order of work is checked

// The devices have no convolutions and no autocast, among others.
bool runs_on_devices(const Case& each) {
  const std::set<std::string> names = {"batch norm", "dropout", "several passes",
                                       "an overflow in one replica"};
  return names.count(each.name) > 0;
}

class ReductionOnDevices : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  static std::unique_ptr<Compute> on_devices(const Change& change = [](TorchComputeConfig&) {}) {
    const auto group = fake::group_join()({0, 1}, kTimeout).value();
    return replicated(2, group, 64, [&change](TorchComputeConfig& config) {
      change(config);
      config.runtime = fake::open_device(static_cast<int>(config.replica),
                                         "replica " + std::to_string(config.replica));
    });
  }
  static std::vector<std::string> violations_with(
      fake::Fault fault, const Change& change = [](TorchComputeConfig&) {}) {
    const auto compute = on_devices(change);
    const FrozenTensor z = compute->initial_parameters();
    EXPECT_EQ(compute->gradient(tiny_request(z, 0)).error, "");
    EXPECT_THAT(fake::violations(), IsEmpty());
    fake::set_fault(fault);
    static_cast<void>(compute->gradient(tiny_request(z, 1)));
    static_cast<void>(compute->gradient(tiny_request(z, 2)));
    return fake::violations();
  }
};

TEST_F(ReductionOnDevices, WaitsForAllThatItUses) {
  at::set_num_threads(1);
  for (const Case& each : cases()) {
    if (!runs_on_devices(each)) continue;
    SCOPED_TRACE(each.name);
    const auto host = replicated(2, std::make_shared<MeetingGroup>(2), kWhole, each.change);
    const auto compute = on_devices(each.change);
    for (Step step = 0; step < 3; ++step) {
      const FrozenTensor z = point(*host, step);
      const Gradient expected = host->gradient(tiny_request(z, step));
      const Gradient found = compute->gradient(tiny_request(z, step));
      ASSERT_EQ(expected.error + found.error, "");
      EXPECT_TRUE(at::equal(found.value.read(), expected.value.read())) << "step " << step;
    }
    EXPECT_THAT(fake::violations(), IsEmpty());
    EXPECT_GE(fake::calls("all-reduce"), 2U * 3U * 2U) << "devices, steps, buckets";
    fake::reset();
  }
}

TEST_F(ReductionOnDevices, AMissingWaitForTheBackwardPassIsFound) {
  EXPECT_THAT(violations_with(fake::Fault::exchange_does_not_wait),
              Contains(HasSubstr("'all-reduce' in device")));
}

// The compute stream looks for an overflow in the mean.
TEST_F(ReductionOnDevices, AMissingWaitForTheReductionIsFound) {
  EXPECT_THAT(violations_with(fake::Fault::exchange_is_not_awaited,
                              [](TorchComputeConfig& config) { config.scale_loss = true; }),
              Contains(HasSubstr("exchange")));
}

TEST_F(ReductionOnDevices, AMissingWaitOfTheDownloadIsFound) {
  EXPECT_THAT(violations_with(fake::Fault::download_does_not_wait),
              Contains(HasSubstr("'download' in device")));
}

}  // namespace bucketed_reduction_test
}  // namespace grapevine
