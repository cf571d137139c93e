#include "net/receive_pool.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>

#include "messages/frozen_tensor.hpp"
#include "messages/random.hpp"
#include "tests/counting_allocator.hpp"

namespace grapevine {
namespace receive_pool_test {

DecodedHeader header_of(std::vector<std::int64_t> sizes) {
  DecodedHeader header;
  for (const std::int64_t floats : sizes)
    header.tensors.push_back(
        {true, at::kFloat, {floats}, static_cast<std::uint64_t>(floats) * sizeof(float)});
  return header;
}

constexpr std::int64_t kLarge = 1 << 20;

TEST(ReceivePool, TensorsAreWhatTheHeaderDescribes) {
  ReceivePool pool(1 << 30);
  DecodedHeader header = header_of({0, 1, 1000, kLarge, kLarge + 1});
  header.tensors.push_back({});
  const auto tensors = pool.allocate(header);
  ASSERT_EQ(tensors.size(), header.tensors.size());
  for (std::size_t i = 0; i + 1 < tensors.size(); ++i) {
    EXPECT_EQ(tensors[i].sizes(), at::IntArrayRef(header.tensors[i].sizes));
    EXPECT_EQ(tensors[i].scalar_type(), at::kFloat);
  }
  EXPECT_FALSE(tensors.back().defined());
}

TEST(ReceivePool, WhatTheLastOwnerLetsGoIsUsedAgain) {
  ReceivePool pool(1 << 30);
  std::optional<FrozenTensor> frozen =
      FrozenTensor::freeze(std::move(pool.allocate(header_of({kLarge}))[0]));
  const void* memory = frozen->raw();
  FrozenTensor copy = *frozen;
  frozen.reset();
  EXPECT_NE(pool.allocate(header_of({kLarge}))[0].data_ptr(), memory) << "in use";
  at::Tensor thawed = std::move(copy).thaw();
  EXPECT_EQ(thawed.data_ptr(), memory) << "neither freeze nor thaw copies";
  thawed.reset();
  EXPECT_EQ(pool.allocate(header_of({kLarge}))[0].data_ptr(), memory);
}

TEST(ReceivePool, KeepsNoMoreThanItMay) {
  ReceivePool pool(kLarge * sizeof(float));
  auto both = pool.allocate(header_of({kLarge, kLarge}));
  both.clear();  // one of them is returned to the system
  const auto again = pool.allocate(header_of({kLarge}));
  EXPECT_TRUE(again[0].defined());
  ReceivePool none(0);
  none.allocate(header_of({kLarge})).clear();
}

// Whatever the size of the blocks.
TEST(ReceivePool, FreesTheLeastRecentlyUsedFirst) {
  constexpr std::int64_t kSmall = 1024;
  ReceivePool pool((kLarge + kSmall) * sizeof(float));
  const CountingAllocator allocator;
  const auto fresh_blocks_of = [&](std::int64_t floats) {
    const std::int64_t before = allocator.blocks();
    static_cast<void>(pool.allocate(header_of({floats})));
    return allocator.blocks() - before;
  };
  EXPECT_EQ(fresh_blocks_of(kLarge), 1);
  EXPECT_EQ(fresh_blocks_of(kSmall), 1);
  EXPECT_EQ(fresh_blocks_of(kLarge), 0) << "both are kept";
  EXPECT_EQ(fresh_blocks_of(kSmall), 0);
  EXPECT_EQ(fresh_blocks_of(2 * kSmall), 1);
  EXPECT_EQ(fresh_blocks_of(kSmall), 0);
  EXPECT_EQ(fresh_blocks_of(2 * kSmall), 0);
  EXPECT_EQ(fresh_blocks_of(kLarge), 1) << "it was the least recently used one";
}

TEST(ReceivePool, TensorsMayOutliveThePool) {
  at::Tensor tensor;
  {
    ReceivePool pool(1 << 30);
    tensor = pool.allocate(header_of({kLarge}))[0];
  }
  tensor.zero_();
}

// Memory is never handed out twice: each tensor keeps what was written into it.
TEST(ReceivePool, LiveTensorsDoNotOverlap) {
  ReceivePool pool(8 << 20);
  Rng rng(21);
  std::vector<at::Tensor> live;
  for (int i = 0; i < 300; ++i) {
    if (live.size() < 6 || rng() % 2 == 0) {
      live.push_back(
          pool.allocate(header_of({20000 + static_cast<std::int64_t>(rng() % 9) * 20000}))[0]);
      live.back().fill_(i);
    } else {
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(rng() % live.size()));
    }
    for (const at::Tensor& t : live)
      ASSERT_TRUE((t == t[0]).all().item<bool>()) << "seed 21, step " << i;
  }
}

}  // namespace receive_pool_test
}  // namespace grapevine
