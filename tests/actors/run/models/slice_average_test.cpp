#include "actors/run/models/slice_average.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace grapevine {
namespace slice_average_test {

constexpr std::int64_t kWhole = std::numeric_limits<std::int64_t>::max();

struct World {
  std::vector<SliceAverage::Source> sources;
  std::vector<std::vector<float>> numbers;  // of each source: parameters, and then buffers
  std::int64_t workers = 0, parameters = 0, buffers = 0;
};

World some_world(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
  World world;
  world.workers = 1 + below(5);
  world.parameters = 1 + below(40);
  world.buffers = below(2) * below(7);
  for (std::int64_t i = 0; i < world.workers; ++i)
    world.sources.push_back({false, world.parameters, world.buffers});
  const std::int64_t servers = below(3) * below(4);
  for (std::int64_t i = 0; i < servers; ++i)
    world.sources.push_back({true, world.parameters / servers + (i < world.parameters % servers),
                             below(2) * world.buffers});
  for (const SliceAverage::Source& source : world.sources) {
    std::vector<float> values(static_cast<std::size_t>(source.parameters + source.buffers));
    for (float& value : values) value = normal(random);
    world.numbers.push_back(std::move(values));
  }
  return world;
}

struct Result {
  FrozenTensor z, buffers;
  double distance = 0;
  std::int64_t longest = 0;
};

Result average(const World& world, std::int64_t most) {
  SliceAverage average(world.sources, most);
  Result result;
  while (average.slice()) {
    result.longest = std::max(result.longest, average.slice()->count);
    std::vector<const float*> values;
    for (const SliceAverage::Piece& piece : average.slice()->pieces) {
      const auto& source = world.numbers[piece.source];
      const auto end = static_cast<std::int64_t>(source.size());
      EXPECT_LE(piece.begin + average.slice()->count, end);
      values.push_back(source.data() + piece.begin);
    }
    average.add(values);
  }
  result.distance = average.consensus_distance();
  result.z = average.z();
  result.buffers = average.buffers();
  return result;
}

bool same_bits(const FrozenTensor& a, const FrozenTensor& b) {
  return a.numel() == b.numel() &&
         (a.numel() == 0 || std::memcmp(a.raw(), b.raw(), a.nbytes()) == 0);
}

double mean_of_workers(const World& world, std::int64_t i) {
  double sum = 0;
  for (std::int64_t w = 0; w < world.workers; ++w)
    sum += world.numbers[static_cast<std::size_t>(w)][static_cast<std::size_t>(i)];
  return sum / static_cast<double>(world.workers);
}

// Number by number, in double precision.
std::vector<double> naive_model(const World& world) {
  std::vector<double> model;
  for (std::size_t i = static_cast<std::size_t>(world.workers); i < world.sources.size(); ++i)
    model.insert(model.end(), world.numbers[i].begin(),
                 world.numbers[i].begin() + world.sources[i].parameters);
  for (std::int64_t i = static_cast<std::int64_t>(model.size()); i < world.parameters; ++i)
    model.push_back(mean_of_workers(world, i));
  return model;
}

double naive_distance(const World& world, const std::vector<double>& model) {
  double distance = 0, scale = 0;
  for (const double value : model) scale += value * value;
  for (std::int64_t w = 0; w < world.workers; ++w) {
    double sum = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
      const double difference = world.numbers[static_cast<std::size_t>(w)][i] - model[i];
      sum += difference * difference;
    }
    distance += std::sqrt(sum / scale) / static_cast<double>(world.workers);
  }
  return distance;
}

TEST(SliceAverage, IsTheMeanWhateverItsSlicesAre) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const World world = some_world(seed);
    const Result whole = average(world, kWhole);
    const std::vector<double> model = naive_model(world);
    ASSERT_EQ(whole.z.numel(), world.parameters);
    for (std::int64_t i = 0; i < world.parameters; ++i)
      ASSERT_FLOAT_EQ(whole.z.data<float>()[i],
                      static_cast<float>(model[static_cast<std::size_t>(i)]));
    ASSERT_EQ(whole.buffers.numel(), world.buffers);
    for (std::int64_t i = 0; i < world.buffers; ++i)
      ASSERT_FLOAT_EQ(whole.buffers.data<float>()[i],
                      static_cast<float>(mean_of_workers(world, world.parameters + i)));
    EXPECT_NEAR(whole.distance, naive_distance(world, model), 1e-6 * (1 + whole.distance));
    for (const std::int64_t most : {1, 3, 16}) {
      const Result sliced = average(world, most);
      EXPECT_LE(sliced.longest, most);
      EXPECT_TRUE(same_bits(sliced.z, whole.z));
      EXPECT_TRUE(same_bits(sliced.buffers, whole.buffers));
      EXPECT_EQ(sliced.distance, whole.distance);
    }
  }
}

TEST(SliceAverage, TheMeanOfEqualModelsIsThatModel) {
  World world = some_world(1);
  world.sources.assign(3, {false, 40, 0});
  const std::vector<float> one = [] {
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> values(40);
    for (float& value : values) value = normal(random);
    return values;
  }();
  world.numbers.assign(3, one);
  const Result result = average(world, 7);
  EXPECT_EQ(std::memcmp(result.z.raw(), one.data(), sizeof(float) * one.size()), 0);
  EXPECT_EQ(result.distance, 0);
}

TEST(SliceAverage, ADistanceIsRelativeToTheMean) {
  World world;
  world.workers = 2;
  world.parameters = 2;
  world.sources.assign(2, {false, 2, 0});
  world.numbers = {{3, 4}, {-3, 0}};  // the mean is {0, 2}
  EXPECT_DOUBLE_EQ(average(world, 1).distance, std::sqrt(13.0) / 2);
  world.numbers = {{3, 4}, {-3, -4}};  // the mean is 0
  EXPECT_EQ(average(world, 1).distance, 0);
}

}  // namespace slice_average_test
}  // namespace grapevine
