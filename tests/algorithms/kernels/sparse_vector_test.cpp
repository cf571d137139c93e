// Selection and merging against naive definitions.
#include "algorithms/kernels/sparse_vector.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "messages/random.hpp"

namespace grapevine {
namespace sparse_vector_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Values of many sizes, ties and zeros among them.
at::Tensor random_values(Rng& rng, std::int64_t d) {
  at::Tensor x = at::empty({d}, at::kFloat);
  auto* values = x.data_ptr<float>();
  const bool ties = rng() % 2 == 0;
  for (std::int64_t i = 0; i < d; ++i) {
    const auto whole = static_cast<double>(rng() % 41) - 20;
    const double fine = std::ldexp(static_cast<double>(rng() >> 11), -53) - 0.5;
    values[i] = static_cast<float>(ties ? whole : fine * std::exp(whole / 4));
  }
  return x;
}

// The definition: all entries that are not zero, by size and then by index; the first k of them.
SparseVector selected(const at::Tensor& x, std::int64_t k) {
  std::vector<std::uint32_t> order;
  const float* values = x.data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i)
    if (values[i] != 0) order.push_back(static_cast<std::uint32_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
  std::sort(order.begin(), order.end());
  SparseVector result;
  for (const std::uint32_t i : order) result.add(i, values[i]);
  return result;
}

void expect_same(const SparseVector& a, const SparseVector& b) {
  EXPECT_EQ(a.indices, b.indices);
  EXPECT_EQ(a.values, b.values);
}

TEST(SparseVector, TopKIsTheDefinition) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Rng rng(seed);
    // On both sides of the length from which on a sample is taken.
    const auto d = static_cast<std::int64_t>(seed % 8 == 0 ? 33000 + rng() % 60000 : rng() % 500);
    const at::Tensor x = random_values(rng, d);
    for (const double density : {0.0, 0.001, 0.03, 0.4, 1.0}) {
      const auto k = static_cast<std::int64_t>(density * static_cast<double>(d));
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", d " << d << ", k " << k);
      expect_same(select_top_k(x, k), selected(x, k));
    }
  }
}

// Samples that mislead: few large entries, all of them equal, all zero but one, huge at the end.
TEST(SparseVector, TopKIsTheDefinitionWhereASampleMisleads) {
  constexpr std::int64_t kD = 50'000;
  std::map<std::string, at::Tensor> cases = {{"equal", at::ones({kD})},
                                             {"one", at::zeros({kD})},
                                             {"few", at::zeros({kD})},
                                             {"end", at::ones({kD})},
                                             {"denormal", at::zeros({kD})}};
  cases["one"][12345] = -3;
  cases["few"].slice(0, 1000, 1400) = at::arange(400) - 200;
  cases["end"].slice(0, kD - 500, kD) = at::arange(500) + 5;
  cases["denormal"].slice(0, 0, kD, 2) = std::numeric_limits<float>::denorm_min();
  for (const auto& [name, x] : cases)
    for (const std::int64_t k : {1, 150, 600, 50'000}) {
      SCOPED_TRACE(name + ", k " + std::to_string(k));
      expect_same(select_top_k(x, k), selected(x, k));
    }
}

TEST(SparseVector, TopKDoesNotDependOnThreads) {
  Rng rng(5);
  const at::Tensor x = random_values(rng, 1 << 20);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const SparseVector one = select_top_k(x, 3000);
  at::set_num_threads(4);
  const SparseVector four = select_top_k(x, 3000);
  at::set_num_threads(before);
  expect_same(one, four);
}

TEST(SparseVector, ZerosAreNeverChosenAndNansAlways) {
  at::Tensor x = at::zeros({100'000});
  x[7] = -0.0;
  EXPECT_EQ(select_top_k(x, 10).size(), 0);
  x[70'000] = std::numeric_limits<float>::infinity();
  x[80'000] = std::numeric_limits<float>::quiet_NaN();
  x[90'000] = 1e30;
  const SparseVector two = select_top_k(x, 2);
  EXPECT_THAT(two.indices, ElementsAre(70'000, 80'000));
  EXPECT_TRUE(std::isnan(select_top_k(x, 1).values.at(0)));
}

TEST(SparseVector, AboutKIsAboutK) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const at::Tensor x = random_values(rng, 100'000);
    for (const std::int64_t k : {1, 300, 20'000}) {
      const SparseVector some = select_about_k(x, k);
      EXPECT_GE(some.size(), k - k / 2);
      EXPECT_LE(some.size(), k + k / 2);
      // A threshold: nothing that is left out is larger than something that is in.
      const SparseVector exact = selected(x, some.size());
      float least = std::numeric_limits<float>::max(), least_exact = least;
      for (const float v : some.values) least = std::min(least, std::fabs(v));
      for (const float v : exact.values) least_exact = std::min(least_exact, std::fabs(v));
      EXPECT_EQ(least, least_exact);
    }
  }
}

// Longer than a sample, where the threshold comes from it alone: within half of k, for values that
// are easy to sample and for few large ones among many.
TEST(SparseVector, AboutKOfALongVectorIsWithinItsBounds) {
  for (const std::int64_t d : {32'769, 40'000, 1'000'000})
    for (const std::int64_t k : {std::int64_t{40}, d / 100, d / 3})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(testing::Message() << "d " << d << ", k " << k << ", seed " << seed);
        const at::Tensor x =
            at::randn({d}, at::make_generator<at::CPUGeneratorImpl>(seed), at::TensorOptions());
        const SparseVector some = select_about_k(x, k);
        EXPECT_GE(some.size(), k - k / 2);
        EXPECT_LE(some.size(), k + k / 2);
        EXPECT_TRUE(std::is_sorted(some.indices.begin(), some.indices.end()));
        float least = std::numeric_limits<float>::max();
        for (const float v : some.values) least = std::min(least, std::fabs(v));
        EXPECT_EQ((x.abs() >= least).sum().item<std::int64_t>(), some.size());
        at::Tensor few = at::zeros({d});
        few.slice(0, 0, d, d / 50).add_(x[0] + 10);
        EXPECT_EQ(select_about_k(few, 60).size(), few.count_nonzero().item<std::int64_t>());
      }
}

// By layer: the definition, of each by itself.
TEST(SparseVector, KeepsTheLargestOfEachLayer) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<LayerQuota> quotas;
    std::int64_t end = 0;
    for (std::uint64_t layers = 1 + rng() % 6; layers > 0; --layers) {
      end += static_cast<std::int64_t>(rng() % 40);
      quotas.push_back({end, static_cast<std::int64_t>(rng() % 9)});
    }
    const at::Tensor x = random_values(rng, end);
    SparseVector all, rejected;
    for (std::int64_t i = 0; i < end; ++i)
      if (x[i].item<float>() != 0 && rng() % 3 > 0)
        all.add(static_cast<std::uint32_t>(i), x[i].item<float>());
    const SparseVector kept = keep_top_k(all, quotas, &rejected);
    SparseVector expected;
    std::int64_t begin = 0;
    for (const LayerQuota& quota : quotas) {
      at::Tensor layer = at::zeros({end});
      for (std::size_t i = 0; i < all.indices.size(); ++i)
        if (all.indices[i] >= begin && all.indices[i] < quota.end)
          layer[all.indices[i]] = all.values[i];
      expected.append(selected(layer, quota.k));
      begin = quota.end;
    }
    expect_same(kept, expected);
    expect_same(merge(kept, rejected), all);
  }
}

// What 16 bits cannot hold is handed back, to the last bit; rounding again changes nothing.
TEST(SparseVector, RoundedValuesAndWhatTheyLostAreTheValues) {
  SparseVector x;
  Rng rng(3);
  for (std::uint32_t i = 0; i < 2000; ++i)
    x.add(i, static_cast<float>(std::ldexp(static_cast<double>(rng() >> 11) - (1LL << 52),
                                           static_cast<int>(rng() % 45) - 80)));
  x.add(2000, 5e8F);
  x.add(2001, -65519.996F);
  x.add(2002, 3e-8F);
  const SparseVector before = x;
  expect_same(round_values(x, ValueType::f32), {});
  expect_same(x, before);
  const SparseVector lost = round_values(x, ValueType::f16);
  EXPECT_GT(lost.size(), 1000);
  expect_same(merge(x, lost), before);
  EXPECT_EQ(x.values[2000], 65504);
  EXPECT_EQ(x.values[2001], -65504);
  const SparseVector rounded = x;
  EXPECT_EQ(round_values(x, ValueType::f16).size(), 0);
  expect_same(x, rounded);

  const Packed packed = to_packed(before, ValueType::f16);
  EXPECT_EQ(packed.values.nbytes(), 2 * before.indices.size());
  expect_same(*from_packed(packed, 2003), rounded);
  SparseVector special;
  special.add(1, std::numeric_limits<float>::infinity());
  special.add(2, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(round_values(special, ValueType::f16).size(), 0);
  EXPECT_TRUE(std::isinf(special.values[0]) && std::isnan(special.values[1]));
}

SparseVector random_list(Rng& rng, std::int64_t d, std::uint64_t one_in) {
  SparseVector list;
  for (std::int64_t i = 0; i < d; ++i)
    if (rng() % one_in == 0)
      list.add(static_cast<std::uint32_t>(i), static_cast<float>(rng() % 17) - 8);
  return list;
}

at::Tensor dense(const SparseVector& list, std::int64_t d) {
  at::Tensor x = at::zeros({d});
  add_entries(x, list, 1);
  return x;
}

bool increases(const SparseVector& list) {
  return std::adjacent_find(list.indices.begin(), list.indices.end(), std::greater_equal<>()) ==
         list.indices.end();
}

TEST(SparseVector, MergingAndKeepingLoseNothing) {
  constexpr std::int64_t kD = 300;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<SparseVector> lists(1 + rng() % 7);
    at::Tensor total = at::zeros({kD});
    for (SparseVector& list : lists) {
      list = random_list(rng, kD, 1 + rng() % 20);
      total += dense(list, kD);
    }
    const SparseVector sum = merge_all(lists);
    EXPECT_TRUE(increases(sum));
    EXPECT_TRUE(at::equal(dense(sum, kD), total));

    const auto k = static_cast<std::int64_t>(rng() % 60);
    SparseVector rejected;
    const SparseVector kept = keep_top_k(sum, k, &rejected);
    EXPECT_EQ(kept.size(), std::min(k, sum.size()));
    EXPECT_TRUE(increases(kept) && increases(rejected));
    EXPECT_EQ(kept.size() + rejected.size(), sum.size());
    EXPECT_TRUE(at::equal(dense(kept, kD) + dense(rejected, kD), total));
    float least = std::numeric_limits<float>::max();
    for (const float v : kept.values) least = std::min(least, std::fabs(v));
    for (const float v : rejected.values) EXPECT_LE(std::fabs(v), least);

    const SparseVector in = intersect(sum, kept, true), out = intersect(sum, kept, false);
    expect_same(in, kept);
    expect_same(out, rejected);
  }
}

TEST(SparseVector, ASumOfZeroKeepsItsIndex) {
  SparseVector a, b;
  a.add(3, 5);
  b.add(3, -5);
  b.add(4, 1);
  const SparseVector sum = merge(a, b);
  EXPECT_THAT(sum.indices, ElementsAre(3, 4));
  EXPECT_THAT(sum.values, ElementsAre(0, 1));
  EXPECT_THAT(keep_top_k(sum, 1, nullptr).indices, ElementsAre(4));
}

TEST(SparseVector, PackedReadsBackAndNothingElseDoes) {
  SparseVector x;
  x.add(2, 1.5F);
  x.add(9, -1);
  expect_same(*from_packed(to_packed(x), 10), x);
  EXPECT_THAT((*from_packed(to_packed({}), 10)).indices, IsEmpty());

  const auto refusal = [](const Packed& packed) {
    const auto read = from_packed(packed, 10);
    if (read.ok()) return std::string("accepted");
    EXPECT_EQ(read.error().code, Errc::protocol);
    return read.error().message;
  };
  const auto list = [](std::vector<int> indices, std::vector<float> values) {
    return Packed{FrozenTensor::copy_of(at::tensor(indices, at::kInt)),
                  FrozenTensor::copy_of(at::tensor(values)),
                  {}};
  };
  EXPECT_EQ(refusal(list({0, 9}, {1, 2})), "accepted");
  EXPECT_THAT(refusal(list({0, 10}, {1, 2})), HasSubstr("index 10 of a vector of 10"));
  // The bits of 2^32 - 1.
  EXPECT_THAT(refusal(list({0, -1}, {1, 2})), HasSubstr("index 4294967295"));
  EXPECT_THAT(refusal(list({3, 3}, {1, 2})), HasSubstr("index 3 follows index 3"));
  EXPECT_THAT(refusal(list({4, 3}, {1, 2})), HasSubstr("index 3 follows index 4"));
  EXPECT_THAT(refusal(list({1, 2}, {1})), HasSubstr("no list"));
  EXPECT_THAT(refusal({}), HasSubstr("no list"));
  Packed other = list({1}, {1});
  other.values = FrozenTensor::copy_of(at::zeros({1}, at::kDouble));
  EXPECT_THAT(refusal(other), HasSubstr("no list"));
  other = list({1}, {1});
  other.scales = FrozenTensor::copy_of(at::zeros({1}));
  EXPECT_THAT(refusal(other), HasSubstr("no list"));
}

}  // namespace sparse_vector_test
}  // namespace grapevine
