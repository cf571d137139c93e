// The tolerance of tests on GPUs itself: it takes rounding for what it is, and nothing else.
#include "tests/gpu/gradient_tolerance.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace gradient_tolerance_test {

constexpr Precision kAll[] = {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16};

// A vector at this distance of (1, 0), at a right angle.
at::Tensor beside(double distance) {
  return at::tensor({1.0, std::sqrt(2 * distance)}, at::TensorOptions(at::kDouble));
}

TEST(GradientTolerance, DistanceIsThatOfTheAngleOrOfTheNorm) {
  const at::Tensor x = at::tensor({3.0, 4.0}), y = at::tensor({4.0, 3.0});
  EXPECT_NEAR(distance(x, y), 1 - 24.0 / 25, 1e-12);
  EXPECT_NEAR(distance(2 * x, x), 0.5, 1e-12);
  EXPECT_NEAR(distance(beside(0.03), beside(0)), 0.03, 1e-12);
  EXPECT_EQ(distance(x, x), 0);
}

TEST(GradientTolerance, IsFourTimesTheDistanceOfMovedParameters) {
  const at::Tensor expected = beside(0);
  for (const Precision precision : kAll) {
    const double floor = always_allowed(precision);
    const auto why = [&](double found, double of_moved) {
      return why_unlike(beside(found), expected, beside(of_moved), precision);
    };
    EXPECT_EQ(why(0.9 * floor, 0), "");
    EXPECT_NE(why(1.1 * floor, 0), "");
    EXPECT_EQ(why(floor + 0.19, 0.05), "");
    EXPECT_NE(why(floor + 0.21, 0.05), "");
    EXPECT_EQ(why(0.9, 0.11), "") << "a chaotic gradient says nothing";
    EXPECT_NE(why(std::numeric_limits<double>::quiet_NaN(), 0.05), "");
  }
}

TEST(GradientTolerance, MovesEachValueByItsRounding) {
  const FrozenTensor z = FrozenTensor::freeze(at::linspace(1, 3, 10000));
  for (const Precision precision : kAll) {
    const double rounding = rounding_of(precision);
    const FrozenTensor there = moved(z, rounding, 7);
    const at::Tensor error =
        (there.read().to(at::kDouble) / z.read().to(at::kDouble) - 1) / rounding;
    EXPECT_NEAR(error.square().mean().item<double>(), 1, 0.1);
    EXPECT_TRUE(moved(z, rounding, 7).read().equal(there.read()));
    EXPECT_FALSE(moved(z, rounding, 8).read().equal(there.read()));
  }
}

// The gradients of a model with normalisation at a point, at a moved one, and wrong ones.
class OfAModel : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    torch::manual_seed(6);  // a point at which each layer has a fifth of the gradient's square
    z_ = FrozenTensor::freeze(at::randn({compute_->dimension()}));
    expected_ = gradient_at(z_);
    of_moved_ = gradient_at(moved(z_, rounding_of(GetParam()), 1));
  }
  at::Tensor gradient_at(const FrozenTensor& z) {
    const Gradient gradient = compute_->gradient(tiny_request(z));
    EXPECT_EQ(gradient.error, "");
    return gradient.value.read();
  }
  std::string why(const at::Tensor& found) const {
    return why_unlike(found, expected_, of_moved_, GetParam());
  }

  const std::unique_ptr<Compute> compute_ = make_tiny(tiny_config(tiny_layers, 0, 1, 40));
  FrozenTensor z_;
  at::Tensor expected_;
  at::Tensor of_moved_;
};

TEST_P(OfAModel, TakesRoundingForWhatItIs) {
  for (std::uint64_t seed = 2; seed < 12; ++seed)
    EXPECT_EQ(why(gradient_at(moved(z_, rounding_of(GetParam()), seed))), "") << seed;
}

TEST_P(OfAModel, RefusesAWrongLayer) {
  constexpr std::int64_t kFirst = 3 * 8 + 8, kLast = 8 * 6 + 6;
  for (const bool first : {true, false}) {
    for (const double factor : {0.0, 2.0, -1.0}) {
      at::Tensor wrong = expected_.clone();
      const at::Tensor layer =
          first ? wrong.narrow(0, 0, kFirst) : wrong.narrow(0, wrong.numel() - kLast, kLast);
      ASSERT_GT((layer.square().sum() / wrong.square().sum()).item<double>(), 0.2);
      layer.mul_(factor);
      EXPECT_NE(why(wrong), "") << (first ? "first" : "last") << " layer times " << factor;
    }
  }
}

TEST_P(OfAModel, RefusesAWrongScaleAndAnotherPoint) {
  EXPECT_NE(why(2 * expected_), "");
  EXPECT_NE(why(at::zeros_like(expected_)), "");
  EXPECT_NE(why(gradient_at(FrozenTensor::freeze(0.5 * z_.read()))), "");
}

INSTANTIATE_TEST_SUITE_P(Precisions, OfAModel, testing::ValuesIn(kAll));

}  // namespace gradient_tolerance_test
}  // namespace grapevine
