// TorchCompute on a device, of models in the host's memory and of models on the device.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace resident_compute_test {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class ResidentCompute : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  std::unique_ptr<Compute> on_device(torch::nn::Sequential (*layers)()) {
    TorchComputeConfig config = tiny_config(layers);
    config.runtime = fake::open_device(0, "worker");
    return make_tiny(std::move(config));
  }
  // z as a peer has it: written by its exchange stream.
  FrozenTensor resident(const FrozenTensor& z) {
    const auto scope = peer_->enter(Stream::exchange);
    at::Tensor here = at::empty(z.sizes(), at::TensorOptions(at::kFloat).device(fake::device(0)));
    here.copy_(z.read());
    here.mul_(1);
    return FrozenTensor::freeze(std::move(here));
  }
  static void expect_same(const Gradient& a, const Gradient& b) {
    ASSERT_EQ(a.error, "");
    ASSERT_EQ(b.error, "");
    EXPECT_TRUE(fake::peek(a.value.read()).equal(b.value.read()));
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.buffers.defined(), b.buffers.defined());
    if (b.buffers.defined()) {
      EXPECT_TRUE(fake::peek(a.buffers.read()).equal(b.buffers.read()));
    }
  }

  const std::shared_ptr<DeviceRuntime> peer_ = fake::open_device(0, "peer");
};

torch::nn::Sequential with_dropout() { return tiny_layers_with_dropout(); }

TEST_F(ResidentCompute, HasTheBitsOfTheCpuWhereverTheModelIs) {
  for (auto* layers : {&tiny_layers, &plain_layers, &with_dropout}) {
    const auto host = make_tiny(tiny_config(layers));
    const auto compute = on_device(layers);
    const FrozenTensor z = host->initial_parameters();
    for (Step step = 0; step < 3; ++step) {
      const Gradient expected = host->gradient(tiny_request(z, step));
      const Gradient staged = compute->gradient(tiny_request(z, step));
      expect_same(staged, expected);
      EXPECT_TRUE(staged.value.device().is_cpu());
      const Gradient here = compute->gradient(tiny_request(resident(z), step));
      EXPECT_EQ(here.value.device(), fake::device(0));
      expect_same(here, expected);
    }
    EXPECT_EQ(compute->evaluate(z, {})->loss, host->evaluate(z, {})->loss);
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
}

// A peer gives gradients and buffers back.
TEST_F(ResidentCompute, TakesBackWhatItGave) {
  const auto host = make_tiny(tiny_config(tiny_layers));
  const auto compute = on_device(tiny_layers);
  const FrozenTensor z = host->initial_parameters();
  GradientRequest mine = tiny_request(z), other = tiny_request(resident(z));
  for (Step step = 0; step < 4; ++step) {
    mine.step = other.step = step;
    Gradient expected = host->gradient(mine), here = compute->gradient(std::move(other));
    expect_same(here, expected);
    mine.buffers = expected.buffers;
    other = tiny_request(resident(z));
    other.buffers = std::move(here.buffers);
    const auto scope = peer_->enter(Stream::exchange);
    at::Tensor g = std::move(here.value).thaw();
    g.mul_(0.5);
    other.recycled = FrozenTensor::freeze(std::move(g));
  }
  EXPECT_THAT(fake::violations(), IsEmpty());
}

TEST_F(ResidentCompute, MovesNoModelOverTheHostsLink) {
  const auto compute = on_device(plain_layers);
  const FrozenTensor z = compute->initial_parameters(), here = resident(z);
  const std::uint64_t d = z.nbytes();
  fake::reset();
  ASSERT_EQ(compute->gradient(tiny_request(here, 0)).error, "");
  const fake::Traffic resident = fake::traffic();
  fake::reset();
  ASSERT_EQ(compute->gradient(tiny_request(z, 1)).error, "");
  const fake::Traffic staged = fake::traffic();
  // Batches go up either way, that of the next step too where it has been read in time.
  EXPECT_LT(resident.up, d);
  EXPECT_GE(staged.up, d);
  EXPECT_EQ(staged.down - resident.down, d) << "the gradient";
  EXPECT_LT(resident.down, d) << "figures only";
}

TEST_F(ResidentCompute, MissingWaitForAnUploadIsFound) {
  const auto compute = on_device(plain_layers);
  fake::set_fault(fake::Fault::upload_is_not_awaited);
  static_cast<void>(compute->gradient(tiny_request(compute->initial_parameters(), 0)));
  EXPECT_THAT(fake::violations(), Contains(HasSubstr("reads what was written by 'upload'")));
}

TEST_F(ResidentCompute, MissingWaitForADownloadIsFound) {
  const auto compute = on_device(plain_layers);
  fake::set_fault(fake::Fault::host_does_not_wait);
  static_cast<void>(compute->gradient(tiny_request(compute->initial_parameters(), 0)));
  EXPECT_THAT(fake::violations(),
              Contains(HasSubstr("touches pinned memory before it has waited for 'download'")));
}

}  // namespace resident_compute_test
}  // namespace grapevine
