#include "gpu/model/precision.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu/narrow_layers.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace precision_test {

double cosine(const FrozenTensor& a, const FrozenTensor& b) {
  const at::Tensor x = a.read().to(at::kDouble);
  const at::Tensor y = b.read().to(at::kDouble);
  return (x.dot(y) / (x.norm() * y.norm())).item<double>();
}

TEST(Precision, Names) {
  EXPECT_EQ(parse_precision("fp32", at::kCPU).value(), Precision::fp32);
  EXPECT_EQ(parse_precision("bf16", at::kCPU).value(), Precision::bf16);
  EXPECT_EQ(parse_precision("fp16", at::kCUDA).value(), Precision::fp16);
  EXPECT_EQ(parse_precision("fp16", at::kCPU).error().message,
            "--precision fp16: needs a CUDA GPU: use bf16 or fp32 on the CPU");
  EXPECT_EQ(parse_precision("bf61", at::kCPU).error().message,
            "unknown --precision 'bf61': did you mean 'bf16'? valid: fp32, tf32, bf16, fp16");
}

TEST(Precision, Tf32IsOfGpusAndOfTheWholeProcess) {
  EXPECT_EQ(parse_precision("tf32", at::kCUDA).value(), Precision::tf32);
  EXPECT_EQ(parse_precision("tf32", at::kCPU).error().message,
            "--precision tf32: needs a CUDA GPU: use bf16 or fp32 on the CPU");
  const at::Context& context = at::globalContext();
  for (const bool benchmark : {true, false}) {
    set_math_mode(Precision::tf32, benchmark);
    EXPECT_TRUE(context.allowTF32CuBLAS() && context.allowTF32CuDNN());
    EXPECT_EQ(context.benchmarkCuDNN(), benchmark);
    set_math_mode(Precision::fp32, benchmark);
    EXPECT_FALSE(context.allowTF32CuBLAS() || context.allowTF32CuDNN());
  }
  const AutocastScope none(Precision::tf32, at::kCPU);
  const at::Tensor a = at::ones({2, 2});
  EXPECT_EQ(a.matmul(a).scalar_type(), at::kFloat);
}

TEST(Precision, AutocastEndsWithItsScope) {
  const at::Tensor a = at::ones({2, 2});
  {
    const AutocastScope outer(Precision::bf16, at::kCPU);
    EXPECT_EQ(a.matmul(a).scalar_type(), at::kBFloat16);
    { const AutocastScope inner(Precision::bf16, at::kCPU); }
    EXPECT_EQ(a.matmul(a).scalar_type(), at::kBFloat16);
    const AutocastScope none(Precision::fp32, at::kCPU);
    EXPECT_EQ(a.matmul(a).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(a.matmul(a).scalar_type(), at::kFloat);
}

// bf16 keeps 8 bits: the direction of the gradient and batch-norm's statistics, which are summed in
// 32 bits, stay.
TEST(Precision, Bf16GradientIsCloseToThatInFp32) {
  for (const auto& layers : {tiny_layers, tiny_conv_layers}) {
    TorchComputeConfig config = tiny_config(layers);
    if (layers == tiny_conv_layers) config.data = tiny_images();
    const auto exact = make_tiny(config);
    config.precision = Precision::bf16;
    const auto rounded = make_tiny(config);
    for (Step step = 0; step < 5; ++step) {
      const FrozenTensor z = exact->initial_parameters();
      const Gradient a = exact->gradient(tiny_request(z, step));
      const Gradient b = rounded->gradient(tiny_request(z, step));
      ASSERT_EQ(a.error, "");
      ASSERT_EQ(b.error, "");
      EXPECT_EQ(b.value.dtype(), at::kFloat);
      EXPECT_GT(cosine(a.value, b.value), 0.999);
      EXPECT_FALSE(a.value.read().equal(b.value.read())) << "bf16 has not rounded anything";
      EXPECT_NEAR(a.loss, b.loss, 0.02 * a.loss);
      EXPECT_TRUE(at::allclose(a.buffers.read(), b.buffers.read(), 0.02, 0.01));
    }
  }
}

TEST(Precision, LossFallsInBf16) {
  TorchComputeConfig config = tiny_config(tiny_layers, 0, 1, 20);
  config.precision = Precision::bf16;
  const auto compute = make_tiny(config);
  FrozenTensor z = compute->initial_parameters();
  FrozenTensor buffers;
  double first = 0;
  double last = 0;
  for (Step step = 0; step < 200; ++step) {
    GradientRequest request = tiny_request(z, step);
    request.buffers = buffers;
    const Gradient gradient = compute->gradient(std::move(request));
    ASSERT_EQ(gradient.error, "");
    if (step < 10) first += gradient.loss / 10;
    if (step >= 190) last += gradient.loss / 10;
    buffers = gradient.buffers;
    z = FrozenTensor::freeze(z.read() - 0.3 * gradient.value.read());
  }
  EXPECT_LT(last, 0.85 * first);
  const Evaluation evaluation = compute->evaluate(z, buffers).value();
  EXPECT_TRUE(std::isfinite(evaluation.loss));
}

// A step that overflows gives the gradient all the same: same batch, same masks, statistics counted
// once; and exactly, as the factors are powers of two.
TEST(LossScale, AnOverflowIsComputedAgainAndNothingIsLost) {
  TorchComputeConfig config = tiny_config(narrow_layers<100>);
  const auto plain = make_tiny(config);
  config.scale_loss = true;
  const auto scaled = make_tiny(config);
  for (Step step = 0; step < 5; ++step) {
    const FrozenTensor z = plain->initial_parameters();
    GradientRequest request = tiny_request(z, step);
    request.recycled = FrozenTensor::freeze(at::zeros({plain->dimension()}));
    const Gradient a = plain->gradient(tiny_request(z, step));
    const Gradient b = scaled->gradient(std::move(request));
    ASSERT_EQ(a.error, "");
    ASSERT_EQ(b.error, "");
    EXPECT_TRUE(a.value.read().equal(b.value.read())) << "step " << step;
    EXPECT_TRUE(a.buffers.read().equal(b.buffers.read())) << "step " << step;
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_TRUE(z.read().defined());
  }
}

TEST(LossScale, AGradientThatNeverFitsIsAnErrorOfItsStep) {
  TorchComputeConfig config = tiny_config(narrow_layers<0>);
  config.scale_loss = true;
  const auto compute = make_tiny(config);
  EXPECT_EQ(compute->gradient(tiny_request(compute->initial_parameters(), 4)).error,
            "rank 0: the gradient is not finite at step 4: use --precision bf16, or lower the "
            "learning rate");
}

TEST(LossScale, HalvesAtOnceAndDoublesSlowly) {
  LossScale scale;
  EXPECT_EQ(scale.factor(), 65536);
  EXPECT_TRUE(scale.lower());
  EXPECT_EQ(scale.factor(), 32768);
  for (int i = 0; i < LossScale::kCleanSteps - 1; ++i) scale.succeeded();
  EXPECT_EQ(scale.factor(), 32768);
  EXPECT_TRUE(scale.lower());  // begins to count anew
  for (int i = 0; i < LossScale::kCleanSteps - 1; ++i) scale.succeeded();
  EXPECT_EQ(scale.factor(), 16384);
  scale.succeeded();
  EXPECT_EQ(scale.factor(), 32768);
  for (int i = 0; i < 30 * LossScale::kCleanSteps; ++i) scale.succeeded();
  EXPECT_EQ(scale.factor(), LossScale::kLargest);
  int lowered = 0;
  while (scale.lower()) ++lowered;
  EXPECT_EQ(lowered, 24);
  EXPECT_EQ(scale.factor(), 1);
}

TEST(ChannelsLast, GivesTheSameGradient) {
  TorchComputeConfig config = tiny_config(tiny_conv_layers);
  config.data = tiny_images();
  const auto plain = make_tiny(config);
  config.channels_last = true;
  const auto last = make_tiny(config);
  for (Step step = 0; step < 3; ++step) {
    const FrozenTensor z = plain->initial_parameters();
    const Gradient a = plain->gradient(tiny_request(z, step));
    const Gradient b = last->gradient(tiny_request(z, step));
    ASSERT_EQ(b.error, "");
    EXPECT_TRUE(at::allclose(a.value.read(), b.value.read(), 1e-4, 1e-6));
    EXPECT_NEAR(a.loss, b.loss, 1e-6);
  }
}

// Else each convolution would turn its weights, in both passes.
TEST(ChannelsLast, WeightsOfConvolutionsLieAsImagesDo) {
  TorchComputeConfig config = tiny_config(tiny_conv_layers);
  config.data = tiny_images();
  bool last = false;
  config.model = watched_factory(tiny_conv_layers, [&last](Model& model) {
    last = model.parameters()[0].tensor.is_contiguous(at::MemoryFormat::ChannelsLast);
  });
  for (const bool channels_last : {true, false}) {
    config.channels_last = channels_last;
    const auto compute = make_tiny(config);
    const FrozenTensor z = compute->initial_parameters();
    ASSERT_EQ(compute->gradient(tiny_request(z)).error, "");
    EXPECT_EQ(last, channels_last);
    ASSERT_TRUE(compute->evaluate(z, {}).ok());
    EXPECT_EQ(last, channels_last);
  }
}

TEST(ChannelsLast, NeedsImages) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  config.channels_last = true;
  const auto made = TorchCompute::make(config);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message,
            "--channels-last: data 'tiny' has no images: leave it out, or choose another data set");
  EXPECT_EQ(made.error().code, Errc::bad_input);
}

}  // namespace precision_test
}  // namespace grapevine
