#include "actors/run/models/model_average.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

namespace grapevine {
namespace model_average_test {

FrozenTensor model(std::uint64_t seed, std::int64_t d) {
  at::manual_seed(seed);
  return FrozenTensor::freeze(at::randn({d}));
}

TEST(ModelAverage, BothFormsEqualTheMeanInDoublePrecision) {
  for (const std::int64_t d : {1, 7, 1000})
    for (const int n : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE("d=" + std::to_string(d) + ", n=" + std::to_string(n));
      std::vector<FrozenTensor> models;
      ModelAverage average;
      at::Tensor sum = at::zeros({d}, at::kDouble);
      for (int i = 0; i < n; ++i) {
        models.push_back(model(static_cast<std::uint64_t>(i), d));
        average.add(models.back(), {});
        sum += models.back().read();
      }
      const at::Tensor expected = (sum / n).to(at::kFloat);
      EXPECT_TRUE(at::equal(mean_of(models).read(), expected));
      EXPECT_TRUE(at::equal(average.z().read(), expected));
      EXPECT_FALSE(average.buffers().defined());
    }
}

TEST(ModelAverage, TheMeanOfEqualModelsIsThatModel) {
  const FrozenTensor one = model(4, 100);
  EXPECT_TRUE(at::equal(mean_of({one, one, one}).read(), one.read()));
}

}  // namespace model_average_test
}  // namespace grapevine
