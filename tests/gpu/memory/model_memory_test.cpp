// Models in pinned memory: where they lie, and how a device reads them there.
#include "gpu/memory/model_memory.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gpu/memory/transfers.hpp"
#include "messages/tensor_memory.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/lazy_device.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace model_memory_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kMuch = std::size_t{1} << 30;

std::shared_ptr<ModelMemory> memory_of_device(const std::shared_ptr<DeviceRuntime>& device,
                                              std::size_t limit = kMuch) {
  return ModelMemory::make([device](std::size_t bytes) { return device->pinned_memory(bytes); },
                           limit);
}

FrozenTensor values(std::int64_t size, float first) {
  return FrozenTensor::freeze(at::arange(size, at::kFloat) + first);
}

TEST(ModelMemory, AdoptsAModelOnce) {
  const auto memory = memory_of_device(std::make_shared<LazyDevice>());
  const FrozenTensor first = values(1000, 3), here = memory->adopt(first);
  EXPECT_TRUE(is_pinned_model(here.read()));
  EXPECT_TRUE(is_pinned_model(here.read().narrow(0, 10, 5))) << "a view";
  EXPECT_FALSE(is_pinned_model(first.read()));
  EXPECT_TRUE(here.read().equal(first.read()));
  EXPECT_TRUE(here.sole_owner());
  EXPECT_EQ(memory->adopt(here).raw(), here.raw());
  EXPECT_FALSE(memory->adopt(FrozenTensor()).defined());
  EXPECT_EQ(memory->adopt(FrozenTensor::freeze(at::empty({0}))).numel(), 0);
}

TEST(ModelMemory, BeyondTheLimitModelsLieInOrdinaryMemoryAndTheirSuccessorsAreTriedAgain) {
  const auto device = std::make_shared<LazyDevice>();
  const std::size_t block = StagingPool::block_bytes(4000);
  const auto memory = memory_of_device(device, 2 * block);
  FrozenTensor first = memory->adopt(values(1000, 0)), second = memory->adopt(values(1000, 1));
  const FrozenTensor third = memory->adopt(values(1000, 2));
  EXPECT_TRUE(is_pinned_model(second.read()));
  EXPECT_FALSE(is_pinned_model(third.read()));
  EXPECT_EQ(third.data<float>()[1], 3);
  EXPECT_EQ(memory->adopt(third).raw(), third.raw());
  EXPECT_EQ(memory->usage().overflows, 1);
  first = {};
  const at::Tensor successor = empty_successor(third, {1000});
  EXPECT_TRUE(is_pinned_model(successor));
  EXPECT_LE(device->pinned_bytes, 2 * block);
}

// Of a new vector that follows a model, as the mean of models, nothing is copied for no gain.
TEST(ModelMemory, BeyondTheLimitANewVectorIsTakenOverWhereItLies) {
  const auto memory =
      memory_of_device(std::make_shared<LazyDevice>(), StagingPool::block_bytes(4000));
  FrozenTensor x = memory->adopt(values(1000, 0));
  at::Tensor mean = at::ones({1000});
  const void* const at = mean.data_ptr();
  FrozenTensor next = frozen_successor(x, std::move(mean));
  EXPECT_EQ(next.raw(), at);
  EXPECT_FALSE(is_pinned_model(next.read()));
  EXPECT_TRUE(next.sole_owner());
  x = {};
  EXPECT_TRUE(is_pinned_model(empty_successor(next, {1000}))) << "there is room again";

  const FrozenTensor pinned = memory->adopt(values(1000, 3)), shared = values(1000, 4);
  EXPECT_TRUE(is_pinned_model(pinned.read()));
  at::Tensor held = at::ones({1000});
  at::Tensor same = held;
  const FrozenTensor copied = frozen_successor(pinned, std::move(same));
  held.fill_(2);  // another handle can write it
  EXPECT_EQ(copied.data<float>()[0], 1);
  const FrozenTensor kept = memory->adopt(shared);
  EXPECT_NE(kept.raw(), shared.raw());
  EXPECT_EQ(memory->copy_of(shared.read()).data<float>()[1], 5);
}

TEST(ModelMemory, WithoutLockablePagesModelsLieInOrdinaryMemory) {
  const auto device = std::make_shared<LazyDevice>();
  device->pages = false;
  const FrozenTensor x = memory_of_device(device)->adopt(values(1000, 5));
  EXPECT_FALSE(is_pinned_model(x.read()));
  EXPECT_EQ(x.data<float>()[2], 7);
}

TEST(ModelMemory, TensorsOutliveIt) {
  auto memory = memory_of_device(std::make_shared<LazyDevice>());
  FrozenTensor x = memory->adopt(values(1000, 5));
  memory.reset();
  const at::Tensor next = empty_successor(x, {1000});
  EXPECT_TRUE(is_pinned_model(next));
  x = {};
  EXPECT_TRUE(next.fill_(1).eq(1).all().item<bool>());
}

TEST(ModelMemory, IsUploadedFromWhereItLies) {
  for (const std::int64_t size : {1000, (20 << 20) / 4 + 3}) {
    const auto device = std::make_shared<LazyDevice>();
    const FrozenTensor z = memory_of_device(device)->adopt(values(size, 1));
    const int allocations = device->allocations;
    Transfers transfers(device, kMuch, from_seconds(10));
    Transfers::DeviceSlot slot;
    const at::Tensor up = transfers.upload(z, slot);
    EXPECT_NE(up.data_ptr(), z.raw());
    EXPECT_FALSE(z.sole_owner()) << "the device may still read it";
    const auto scope = transfers.begin_compute();
    EXPECT_TRUE(up.equal(z.read()));
    EXPECT_EQ(transfers.staged_bytes(), 0u);
    EXPECT_EQ(device->allocations, allocations) << "no part of the ring";
    EXPECT_TRUE(transfers.finish());
    EXPECT_TRUE(z.sole_owner());
  }
}

// Neither the caller's handle nor the next model ends what the device still reads.
TEST(ModelMemory, IsNotReusedBeforeItsUploadIsReached) {
  const auto device = std::make_shared<LazyDevice>();
  const auto memory = memory_of_device(device);
  Transfers transfers(device, kMuch, from_seconds(10));
  Transfers::DeviceSlot slot;
  FrozenTensor z = memory->adopt(values(1000, 1));
  const void* const at = z.raw();
  const at::Tensor up = transfers.upload(z, slot);
  at::Tensor next = std::move(z).thaw();  // as a role that updates its model
  EXPECT_NE(next.data_ptr(), at);
  next.fill_(-1);
  const FrozenTensor another = memory->adopt(values(1000, 7));
  EXPECT_NE(another.raw(), at);
  {
    const auto scope = transfers.begin_compute();
    EXPECT_TRUE(up.equal(values(1000, 1).read()));
  }
  EXPECT_TRUE(transfers.finish());
  EXPECT_EQ(memory->adopt(values(1000, 9)).raw(), at) << "reached: it serves again";
}

// A device that does not answer may still read; what it has read ends with the next upload.
TEST(ModelMemory, IsKeptWhileTheDeviceDoesNotAnswer) {
  const auto device = std::make_shared<LazyDevice>();
  const auto memory = memory_of_device(device);
  Transfers transfers(device, kMuch, from_seconds(10));
  Transfers::DeviceSlot slot;
  const FrozenTensor z = memory->adopt(values(1000, 1)), other = memory->adopt(values(1000, 2));
  transfers.upload(z, slot);
  device->dead = true;
  EXPECT_FALSE(transfers.finish());
  EXPECT_FALSE(z.sole_owner());
  device->dead = false;
  device->settle();
  transfers.upload(other, slot);
  EXPECT_TRUE(z.sole_owner());
}

torch::nn::Sequential layers_with_everything() {
  return torch::nn::Sequential(torch::nn::Linear(3, 40), torch::nn::BatchNorm1d(40),
                               std::make_shared<TinyDropout>(), torch::nn::Linear(40, 6));
}

// The owner of z writes its next model over it as soon as it has the gradient, as roles do.
TEST(ModelMemory, StepsThatUpdateInPlaceHaveTheBitsOfTheCpu) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    TorchComputeConfig config = tiny_config(layers_with_everything);
    const auto cpu = make_tiny(config);
    const auto device = std::make_shared<LazyDevice>(seed);
    const auto memory = memory_of_device(device);
    config.runtime = device;
    const auto lazy = make_tiny(config);
    FrozenTensor z = memory->adopt(cpu->initial_parameters());
    const void* const at = z.raw();
    FrozenTensor buffers;
    for (Step step = 0; step < 12; ++step) {
      GradientRequest request = tiny_request(z, step);
      request.buffers = buffers;
      const Gradient expected = cpu->gradient(request);
      const Gradient result = lazy->gradient(std::move(request));
      ASSERT_EQ(result.error, "");
      EXPECT_TRUE(result.value.read().equal(expected.value.read()));
      EXPECT_EQ(result.loss, expected.loss);
      buffers = expected.buffers;
      EXPECT_TRUE(z.sole_owner());
      at::Tensor next = std::move(z).thaw();
      next.sub_(result.value.read(), 0.1);
      z = FrozenTensor::freeze(std::move(next));
    }
    EXPECT_EQ(z.raw(), at) << "no step copied it";
    EXPECT_EQ(lazy->evaluate(z, buffers)->loss, cpu->evaluate(z, buffers)->loss);
    EXPECT_TRUE(z.sole_owner());
  }
}

class ModelOnFakeDevice : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  const std::shared_ptr<DeviceRuntime> device_ = fake::open_device(0, "worker");
  const std::shared_ptr<ModelMemory> memory_ = memory_of_device(fake::open_device(0, "models"));
};

TEST_F(ModelOnFakeDevice, IsReadByTheDeviceAlone) {
  const auto host = make_tiny(tiny_config(plain_layers));
  TorchComputeConfig config = tiny_config(plain_layers);
  config.runtime = device_;
  const auto compute = make_tiny(std::move(config));
  FrozenTensor z = memory_->adopt(host->initial_parameters());
  fake::reset();
  for (Step step = 0; step < 3; ++step) {
    const Gradient expected = host->gradient(tiny_request(z, step));
    const Gradient here = compute->gradient(tiny_request(z, step));
    ASSERT_EQ(here.error, "");
    EXPECT_TRUE(here.value.read().equal(expected.value.read()));
    at::Tensor next = std::move(z).thaw();
    next.sub_(here.value.read());
    z = FrozenTensor::freeze(std::move(next));
  }
  EXPECT_EQ(fake::traffic().up_in_place, 3 * z.nbytes());
  EXPECT_THAT(fake::violations(), IsEmpty());
}

// A planted fault: the upload of Transfers without the handle that it keeps.
TEST_F(ModelOnFakeDevice, AnUploadWhoseSourceIsNotHeldIsFound) {
  for (const bool held : {true, false}) {
    fake::reset();
    FrozenTensor z = memory_->adopt(values(1000, 1));
    const auto scope = device_->enter(Stream::upload);
    const at::Tensor up =
        at::empty({1000}, at::TensorOptions(at::kFloat).device(device_->device()));
    device_->copy(Stream::upload, up, z.read());
    const EventHandle copied = device_->record(Stream::upload);
    const FrozenTensor holder = held ? z : FrozenTensor();
    at::Tensor next = std::move(z).thaw();
    next.fill_(2);
    if (held) {
      EXPECT_THAT(fake::violations(), IsEmpty());
    } else {
      EXPECT_THAT(fake::violations(),
                  Contains(HasSubstr("touches pinned memory before it has waited for 'upload'")));
    }
    ASSERT_TRUE(device_->host_wait(copied, std::chrono::seconds(1)));
  }
}

}  // namespace model_memory_test
}  // namespace grapevine
