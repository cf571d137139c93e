#include <gtest/gtest.h>

#include "apps/zoo/data.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_noise_test {

TEST(Noise, KeepsTheContractInTheShapeOfImageNet) {
  const auto data = *make_data_set("noise", {});
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{3, 224, 224}));
  EXPECT_EQ(data->info().classes, 1000);
  const auto small = *make_data_set("noise:32", {});
  EXPECT_EQ(small->info().sample_shape, (std::vector<std::int64_t>{3, 32, 32}));
  expect_keeps_the_contract(*small, 0);
  expect_threads_agree(*small, 0);
}

TEST(Noise, SamplesDifferAndAreStandardNormal) {
  const auto data = *make_data_set("noise:32", {});
  const Batch batch = *data->batch(Split::train, index_range(0, 200), 0);
  EXPECT_NEAR(batch.input.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(batch.input.var().item<double>(), 1, 0.03);
  EXPECT_FALSE(batch.input[0].equal(batch.input[1]));
  EXPECT_GT(batch.target.max().item<std::int64_t>(), 900);
  EXPECT_LT(batch.target.min().item<std::int64_t>(), 100);
  const Batch test = *data->batch(Split::test, index_range(0, 1), 0);
  EXPECT_FALSE(test.input[0].equal(batch.input[0]));
}

TEST(Noise, ASideOfNoUseIsNamed) {
  for (const char* spec : {"noise:7", "noise:2000", "noise:big"})
    EXPECT_FALSE(make_data_set(spec, {}).ok()) << spec;
}

}  // namespace data_noise_test
}  // namespace grapevine
