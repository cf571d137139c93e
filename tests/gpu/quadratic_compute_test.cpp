#include "gpu/quadratic_compute.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace grapevine {
namespace quadratic_compute_test {

QuadraticConfig config_of(std::int64_t d, Rank rank = 0, std::int64_t ranks = 1) {
  QuadraticConfig config;
  config.dimension = d;
  config.rank = rank;
  config.ranks = ranks;
  config.seed = 5;
  return config;
}

FrozenTensor random_point(std::int64_t d) {
  at::manual_seed(static_cast<std::uint64_t>(d));
  return FrozenTensor::freeze(at::randn({d}));
}

Gradient ask(QuadraticCompute& compute, const FrozenTensor& z, Step step = 0) {
  GradientRequest request;
  request.step = step;
  request.z = z;
  return compute.gradient(std::move(request));
}

TEST(QuadraticCompute, GradientIsThatOfTheFormula) {
  // Below, at and above the period, and not a multiple of eight.
  for (const std::int64_t d : {1, 7, 8, 100, 4093, 4094, 9001}) {
    SCOPED_TRACE(d);
    const auto compute = QuadraticCompute::make(config_of(d)).value();
    const FrozenTensor z = random_point(d);
    const Gradient result = ask(*compute, z);
    ASSERT_EQ(result.error, "");
    const at::Tensor distance = z.read().to(at::kDouble) - compute->optimum().to(at::kDouble);
    EXPECT_TRUE(at::allclose(result.value.read().to(at::kDouble), distance, 0, 1e-6));
    const double loss = 0.5 * distance.pow(2).sum().item<double>();
    EXPECT_NEAR(result.loss, loss, 1e-6 * loss);
    EXPECT_TRUE(std::isnan(result.top1));
    EXPECT_EQ(result.samples, 1);
  }
}

TEST(QuadraticCompute, GradientIsTheSlopeOfTheLoss) {
  QuadraticConfig config = config_of(20, 1, 3);
  config.curvature_min = 0.1;
  config.curvature_max = 10;
  config.heterogeneity = 0.7;
  const auto compute = QuadraticCompute::make(config).value();
  const FrozenTensor z = random_point(20);
  const at::Tensor gradient = ask(*compute, z).value.read().clone();
  for (std::int64_t i = 0; i < 20; ++i) {
    constexpr float kStep = 0.125F;  // central differences of a quadratic are exact at any step
    const auto loss_at = [&](float offset) {
      at::Tensor moved = z.read().clone();
      moved[i] += offset;
      return ask(*compute, FrozenTensor::freeze(std::move(moved))).loss;
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(gradient[i].item<double>(), slope, 1e-4);
  }
}

TEST(QuadraticCompute, CurvatureSpansItsRange) {
  QuadraticConfig config = config_of(50);
  config.curvature_min = 0.5;
  config.curvature_max = 50;
  const auto compute = QuadraticCompute::make(config).value();
  const FrozenTensor z = FrozenTensor::freeze(compute->optimum() + 1);
  const at::Tensor gradient = ask(*compute, z).value.read().clone();
  EXPECT_NEAR(gradient[0].item<double>(), 0.5, 1e-4);
  EXPECT_NEAR(gradient[49].item<double>(), 50, 1e-2);
}

TEST(QuadraticCompute, RanksAverageToTheGlobalObjective) {
  constexpr std::int64_t kRanks = 5;
  constexpr std::int64_t kSize = 5000;
  at::Tensor mean_optimum = at::zeros({kSize}, at::kDouble);
  at::Tensor mean_gradient = at::zeros({kSize}, at::kDouble);
  const FrozenTensor z = random_point(kSize);
  double mean_loss = 0;
  std::unique_ptr<QuadraticCompute> compute;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    QuadraticConfig config = config_of(kSize, rank, kRanks);
    config.curvature_max = 4;
    config.heterogeneity = 0.3;
    compute = QuadraticCompute::make(config).value();
    mean_optimum += compute->own_optimum() / kRanks;
    mean_gradient += ask(*compute, FrozenTensor::freeze(compute->optimum())).value.read() / kRanks;
    mean_loss += ask(*compute, z).loss / kRanks;
  }
  EXPECT_TRUE(at::allclose(mean_optimum, compute->optimum().to(at::kDouble), 0, 1e-6));
  EXPECT_LT(mean_gradient.abs().max().item<double>(), 1e-6);
  EXPECT_NEAR(compute->evaluate(z, {})->loss, mean_loss, 1e-5 * mean_loss);
  const double at_optimum = compute->evaluate(FrozenTensor::freeze(compute->optimum()), {})->loss;
  EXPECT_NEAR(at_optimum, compute->optimal_loss(), 1e-9 * at_optimum);
  EXPECT_GT(mean_loss, at_optimum);
  // The last rank's own optimum is sqrt(2) h away in each coordinate, h rms over the ranks.
  const at::Tensor away = (compute->own_optimum() - compute->optimum()).abs();
  EXPECT_TRUE(at::allclose(away, at::full_like(away, 0.3 * std::sqrt(2.0)), 0, 1e-6));
}

TEST(QuadraticCompute, DescentReachesTheOptimum) {
  const auto compute = QuadraticCompute::make(config_of(64)).value();
  at::Tensor x = compute->initial_parameters().read().clone();
  for (Step step = 0; step < 60; ++step)
    x = x - 0.5 * ask(*compute, FrozenTensor::copy_of(x), step).value.read();
  EXPECT_TRUE(at::allclose(x, compute->optimum(), 0, 1e-5));
}

TEST(QuadraticCompute, NoiseHasItsDeviationAndItsSeed) {
  QuadraticConfig config = config_of(200000);
  const auto exact = QuadraticCompute::make(config).value();
  config.noise = 0.25;
  const auto noisy = QuadraticCompute::make(config).value();
  const FrozenTensor z = random_point(200000);
  const at::Tensor clean = ask(*exact, z, 3).value.read().clone();
  const at::Tensor first = ask(*noisy, z, 3).value.read().clone();
  EXPECT_TRUE(first.equal(ask(*noisy, z, 3).value.read()));
  EXPECT_FALSE(first.equal(ask(*noisy, z, 4).value.read()));
  const at::Tensor noise = first - clean;
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.005);
  EXPECT_NEAR(noise.std().item<double>(), 0.25, 0.005);
}

TEST(QuadraticCompute, ReusesMemoryAndReleasesZ) {
  const auto compute = QuadraticCompute::make(config_of(100)).value();
  const FrozenTensor z = random_point(100);
  GradientRequest request;
  request.z = z;
  request.recycled = FrozenTensor::freeze(at::ones({100}));
  const void* memory = request.recycled.raw();
  const Gradient result = compute->gradient(std::move(request));
  EXPECT_EQ(result.value.raw(), memory);
  EXPECT_TRUE(result.value.sole_owner());
  EXPECT_TRUE(z.sole_owner());
}

TEST(QuadraticCompute, ServesTheSizeOfAResNet50) {
  constexpr std::int64_t kSize = 25'000'000;
  const auto compute = QuadraticCompute::make(config_of(kSize)).value();
  const Gradient result = ask(*compute, compute->initial_parameters());
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.value.numel(), kSize);
  EXPECT_NEAR(result.loss, kSize / 6.0, kSize * 0.01);  // 1/2 of the mean square of U[-1, 1)
}

TEST(QuadraticCompute, Errors) {
  const auto compute = QuadraticCompute::make(config_of(3)).value();
  EXPECT_EQ(ask(*compute, random_point(4)).error,
            "z has 4 values, the quadratic loss needs 3 float32 ones on the CPU");
  EXPECT_FALSE(compute->evaluate(FrozenTensor(), {}).ok());
  const at::Tensor infinite = at::full({3}, std::numeric_limits<float>::infinity());
  EXPECT_NE(
      ask(*compute, FrozenTensor::copy_of(infinite), 8).error.find("loss is not finite at step 8"),
      std::string::npos);
  const auto rejects = [](auto change) {
    QuadraticConfig config = config_of(3);
    change(config);
    const auto made = QuadraticCompute::make(config);
    return !made.ok() && made.error().code == Errc::bad_input;
  };
  EXPECT_TRUE(rejects([](auto& c) { c.dimension = 0; }));
  EXPECT_TRUE(rejects([](auto& c) { c.ranks = 0; }));
  EXPECT_TRUE(rejects([](auto& c) { c.rank = 1; }));
  EXPECT_TRUE(rejects([](auto& c) { c.batch_size = 0; }));
  EXPECT_TRUE(rejects([](auto& c) { c.curvature_min = 0; }));
  EXPECT_TRUE(rejects([](auto& c) { c.curvature_max = 0.5; }));
  EXPECT_TRUE(rejects([](auto& c) { c.heterogeneity = -1; }));
  EXPECT_TRUE(rejects([](auto& c) { c.noise = std::nan(""); }));
}

}  // namespace quadratic_compute_test
}  // namespace grapevine
