// Buckets of a gradient are the gradient, complete in one order however its parts arrive.
#include "gpu/model/gradient_buckets.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "tests/gpu/tiny_model.hpp"

namespace grapevine {
namespace gradient_buckets_test {

constexpr unsigned kSeed = 11;
constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));

// Parameters of these sizes.
class Sized : public torch::nn::Module {
 public:
  explicit Sized(const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t size : sizes)
      register_parameter("p" + std::to_string(parameters().size()), at::zeros({size}));
  }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

struct Parameters {
  std::unique_ptr<Model> model;
  FlatTensors flat;
};

Parameters parameters_of(const std::vector<std::int64_t>& sizes) {
  Parameters made;
  made.model =
      *tiny_factory([&sizes] { return torch::nn::Sequential(std::make_shared<Sized>(sizes)); })(0);
  made.flat = *FlatTensors::of_parameters(*made.model);
  return made;
}

std::vector<std::int64_t> random_sizes(std::mt19937& random) {
  std::vector<std::int64_t> sizes(1 + random() % 12);
  for (std::int64_t& size : sizes) size = 1 + static_cast<std::int64_t>(random() % 40);
  return sizes;
}

TEST(GradientBuckets, AreWholeParametersFromTheBackAndNoLargerThanNeeded) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 200; ++i) {
    const Parameters parameters = parameters_of(random_sizes(random));
    const std::int64_t least = static_cast<std::int64_t>(random() % 100) * kFloat;
    const auto buckets = buckets_of(parameters.flat, least);
    std::size_t last = parameters.flat.tensors().size();
    std::int64_t end = parameters.flat.numel();
    for (const GradientBucket& bucket : buckets) {
      SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", case " << i);
      ASSERT_GT(bucket.count, 0U);
      EXPECT_EQ(bucket.first + bucket.count, last);
      EXPECT_EQ(bucket.begin + bucket.size, end);
      EXPECT_EQ(bucket.begin, parameters.flat.begin_of(bucket.first));
      if (bucket.first > 0) {
        EXPECT_GE(bucket.size * kFloat, least);
      }
      const std::int64_t first = parameters.flat.tensors()[bucket.first].numel();
      if (bucket.count > 1) {
        EXPECT_LT((bucket.size - first) * kFloat, least) << "fewer would do";
      }
      last = bucket.first;
      end = bucket.begin;
    }
    EXPECT_EQ(last, 0U);
    EXPECT_EQ(end, 0);
  }
}

TEST(GradientBuckets, OfOneForAllAndOneForEach) {
  const Parameters parameters = parameters_of({3, 1, 4});
  EXPECT_EQ(buckets_of(parameters.flat, std::int64_t{1} << 40).size(), 1U);
  EXPECT_EQ(buckets_of(parameters.flat, 1).size(), 3U);
}

// Against whole gradients, in any order of arrival and with some that do not come.
TEST(GradientBuckets, CompleteInOrderWithTheBitsOfTheWhole) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(testing::Message() << "seed " << kSeed << ", case " << i);
    const Parameters parameters = parameters_of(random_sizes(random));
    const std::size_t count = parameters.flat.tensors().size();
    const auto buckets =
        buckets_of(parameters.flat, static_cast<std::int64_t>(random() % 100) * kFloat);
    at::Generator generator = at::detail::createCPUGenerator(random());
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& each : parameters.flat.tensors())
      gradients.push_back(random() % 4 == 0 ? at::Tensor() : at::randn(each.sizes(), generator));
    const bool adds = random() % 2 == 0;
    const double factor = random() % 2 == 0 ? 1 : 1.0 / 3;

    const at::Tensor before = at::randn({parameters.flat.numel()}, generator);
    at::Tensor expected = at::empty_like(before);
    parameters.flat.pack(gradients, expected);
    if (adds) expected = before + expected;
    if (factor != 1) expected.mul_(factor);

    const at::Tensor flat = before.clone();
    std::size_t completed = 0;
    const GradientBuckets::Complete complete = [&](at::Tensor bucket) {
      ASSERT_LT(completed, buckets.size());
      const GradientBucket& next = buckets[completed++];
      EXPECT_EQ(bucket.data_ptr<float>(), flat.data_ptr<float>() + next.begin);
      EXPECT_TRUE(at::equal(bucket, expected.narrow(0, next.begin, next.size)));
    };
    GradientBuckets all(parameters.flat, buckets, flat, adds, factor, complete);
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<bool> here(count, false);
    for (const std::size_t each : order) {
      if (!gradients[each].defined()) continue;
      all.add(each, gradients[each]);
      here[each] = true;
      std::size_t ready = 0;  // buckets from the first one on of which all have come
      const auto is_here = [&](const GradientBucket& bucket) {
        for (std::size_t p = 0; p < bucket.count; ++p)
          if (!here[bucket.first + p]) return false;
        return true;
      };
      while (ready < buckets.size() && is_here(buckets[ready])) ++ready;
      EXPECT_EQ(completed, ready) << "a bucket is complete as soon as it and those before it are";
    }
    all.finish();
    EXPECT_EQ(completed, buckets.size());
    EXPECT_TRUE(at::equal(flat, expected));
  }
}

TEST(GradientBuckets, AGradientThatComesTwiceIsAnError) {
  const Parameters parameters = parameters_of({3, 4});
  const auto buckets = buckets_of(parameters.flat, 1);
  const GradientBuckets::Complete complete = [](at::Tensor) {};
  GradientBuckets all(parameters.flat, buckets, at::zeros({7}), false, 1, complete);
  all.add(1, at::ones({4}));
  EXPECT_THROW(all.add(1, at::ones({4})), std::exception);
}

}  // namespace gradient_buckets_test
}  // namespace grapevine
