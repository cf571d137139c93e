#include "gpu/memory/staging.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "messages/frozen_tensor.hpp"

namespace grapevine {
namespace staging_test {

constexpr std::size_t kPage = 4096;

// Counts the bytes that are pinned at this moment.
struct Pages {
  std::shared_ptr<std::atomic<std::size_t>> locked = std::make_shared<std::atomic<std::size_t>>(0);
  StagingPool::Allocate allocate() const {
    return [locked = locked](std::size_t bytes) -> std::shared_ptr<void> {
      *locked += bytes;
      return {new unsigned char[bytes], [locked, bytes](void* memory) {
                delete[] static_cast<unsigned char*>(memory);
                *locked -= bytes;
              }};
    };
  }
};

class TestEvent : public DeviceEvent {
 public:
  bool reached() const override { return passed; }
  std::atomic<bool> passed{false};
};

at::Tensor take(StagingPool& pool, std::int64_t floats) {
  return pool.try_take({floats}, at::kFloat);
}

TEST(StagingPool, MemoryComesBackWithTheLastHandle) {
  const Pages pages;
  StagingPool pool(pages.allocate(), 64 * kPage);
  at::Tensor first = take(pool, 1000);
  const void* memory = first.data_ptr();
  const at::Tensor view = first.narrow(0, 10, 20);
  first.reset();
  EXPECT_NE(take(pool, 1000).data_ptr(), memory) << "a view still reads it";
  const at::Tensor second = take(pool, 1000);
  EXPECT_NE(second.data_ptr(), view.data_ptr());
  EXPECT_LE(pool.usage().bytes, 2 * kPage);
}

TEST(StagingPool, FreezesWithoutACopyAndComesBackFromAnotherThread) {
  const Pages pages;
  StagingPool pool(pages.allocate(), 64 * kPage);
  at::Tensor gradient = take(pool, 3000).fill_(2);
  const void* memory = gradient.data_ptr();
  FrozenTensor frozen = FrozenTensor::freeze(std::move(gradient));
  EXPECT_EQ(frozen.raw(), memory);
  EXPECT_TRUE(frozen.sole_owner());
  std::thread receiver([mine = std::move(frozen)]() mutable {
    const at::Tensor thawed = std::move(mine).thaw();
    EXPECT_EQ(thawed[0].item<float>(), 2);
  });
  receiver.join();
  EXPECT_EQ(take(pool, 3000).data_ptr(), memory);
  EXPECT_EQ(pool.usage().overflows, 0);
}

TEST(StagingPool, HeldMemoryIsNotReusedBeforeItsMark) {
  const Pages pages;
  StagingPool pool(pages.allocate(), 64 * kPage);
  const auto event = std::make_shared<TestEvent>();
  at::Tensor source = take(pool, 500);
  const void* memory = source.data_ptr();
  pool.hold(std::move(source), event);
  for (int i = 0; i < 5; ++i) EXPECT_NE(take(pool, 500).data_ptr(), memory);
  event->passed = true;
  const at::Tensor first = take(pool, 500);
  const at::Tensor second = take(pool, 500);
  EXPECT_TRUE(first.data_ptr() == memory || second.data_ptr() == memory);
}

TEST(StagingPool, StaysWithinItsLimit) {
  const Pages pages;
  StagingPool pool(pages.allocate(), 3 * kPage);
  std::vector<at::Tensor> lent;
  for (int i = 0; i < 10; ++i) {
    lent.push_back(take(pool, 1024));
    EXPECT_EQ(lent.back().defined(), i < 3);
    if (i < 3) lent.back().fill_(i);
    EXPECT_LE(*pages.locked, 3 * kPage);
  }
  EXPECT_EQ(pool.usage().bytes, 3 * kPage);
  EXPECT_EQ(pool.usage().overflows, 7);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(lent[static_cast<std::size_t>(i)].eq(i).all().item<bool>());
  lent.clear();
  // What lies idle in the wrong size makes room for the right one.
  EXPECT_EQ(take(pool, 3 * 1024).numel(), 3 * 1024);
  EXPECT_EQ(pool.usage().overflows, 7);
  EXPECT_EQ(*pages.locked, 3 * kPage);
}

// Locking pages may stop the device, so batches that grow by a page at a time must not each lock
// some: there are four sizes for each power of two.
TEST(StagingPool, GrowingTakersLockFewBlocks) {
  const Pages pages;
  int allocations = 0;
  StagingPool pool(
      [&, allocate = pages.allocate()](std::size_t bytes) {
        ++allocations;
        return allocate(bytes);
      },
      std::size_t{1} << 30);
  for (std::int64_t floats = 1024; floats <= 1024 * 1024; floats += 1024) take(pool, floats);
  EXPECT_LE(allocations, 4 * 10 + 1);
  EXPECT_EQ(pool.usage().overflows, 0);
}

TEST(StagingPool, BlocksAreAtMostAQuarterOrAPageLarger) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const std::size_t bytes = 1 + (random() >> (24 + random() % 40));
    const std::size_t block = StagingPool::block_bytes(bytes);
    EXPECT_GE(block, bytes);
    EXPECT_LE(block, bytes + std::max(kPage, bytes / 4)) << bytes;
    EXPECT_LE(block, bytes + (std::size_t{2} << 20)) << bytes;
    EXPECT_EQ(block % kPage, 0U) << bytes;
    EXPECT_EQ(StagingPool::block_bytes(block), block) << bytes;
  }
}

TEST(StagingPool, FreesOnlyWhatATakerNeeds) {
  const Pages pages;
  StagingPool pool(pages.allocate(), 8 * kPage);
  std::vector<at::Tensor> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(take(pool, 1024));
  idle.resize(7);
  const at::Tensor lent = take(pool, 1024);
  idle.clear();
  const at::Tensor large = take(pool, 4 * 1024);
  EXPECT_EQ(pool.usage().bytes, 8 * kPage);
  EXPECT_EQ(pool.usage().free_bytes, 3 * kPage);
  EXPECT_EQ(*pages.locked, 8 * kPage);
  // Nothing is freed in vain.
  take(pool, 4 * 1024);
  EXPECT_EQ(pool.usage().free_bytes, 3 * kPage);
  EXPECT_EQ(pool.usage().overflows, 1);
}

// While one thread locks or unlocks pages, which takes long, others go on.
TEST(StagingPool, AllocatesAndFreesOutsideItsLock) {
  StagingPool* others = nullptr;
  std::vector<std::future<void>> asked;  // end after the pool's calls, as they may wait for these
  int stuck = 0;
  const auto ask = [&] {
    if (others == nullptr) return;
    asked.push_back(std::async(std::launch::async, [&] { others->usage(); }));
    if (asked.back().wait_for(std::chrono::seconds(10)) != std::future_status::ready) ++stuck;
  };
  StagingPool pool(
      [&](std::size_t bytes) -> std::shared_ptr<void> {
        ask();
        return {new unsigned char[bytes], [&](void* memory) {
                  ask();
                  delete[] static_cast<unsigned char*>(memory);
                }};
      },
      4 * kPage);
  others = &pool;
  take(pool, 1024);
  take(pool, 4 * 1024);  // frees the block above
  EXPECT_EQ(asked.size(), 3U);
  EXPECT_EQ(stuck, 0);
  others = nullptr;
}

TEST(StagingPool, WithoutPagesItGivesNothing) {
  StagingPool pool([](std::size_t) { return nullptr; }, 64 * kPage);
  EXPECT_FALSE(take(pool, 100).defined());
  EXPECT_EQ(pool.usage().overflows, 1);
  EXPECT_EQ(pool.usage().bytes, 0U);
  EXPECT_EQ(take(pool, 0).numel(), 0);
}

TEST(StagingPool, TensorsOutliveThePool) {
  const Pages pages;
  auto pool = std::make_unique<StagingPool>(pages.allocate(), 64 * kPage);
  at::Tensor t = take(*pool, 100).fill_(1);
  take(*pool, 5000);
  pool = nullptr;
  EXPECT_EQ(*pages.locked, kPage);
  EXPECT_EQ(t.sum().item<float>(), 100);
  t.reset();
  EXPECT_EQ(*pages.locked, 0U);
}

// Any sequence of taking, holding, reaching and ending: nobody sees another's bytes, the limit
// holds, and in the end all is free.
TEST(StagingPool, NoTwoOwnersShareBytes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Pages pages;
    StagingPool pool(pages.allocate(), 16 * kPage);
    struct Owner {
      at::Tensor tensor;
      std::shared_ptr<TestEvent> event;  // held: read through `bytes` until it is reached
      at::Tensor bytes;
      float value = 0;
    };
    std::vector<Owner> owners;
    for (int i = 0; i < 300; ++i) {
      Owner mine;
      mine.tensor = take(pool, 1 + static_cast<std::int64_t>(random() % 4000));
      mine.value = static_cast<float>(i);
      const bool lent = mine.tensor.defined();
      if (lent) mine.tensor.fill_(mine.value);
      if (lent && random() % 2 == 0) {
        mine.event = std::make_shared<TestEvent>();
        mine.bytes = at::from_blob(mine.tensor.data_ptr(), mine.tensor.sizes(), at::kFloat);
        pool.hold(std::move(mine.tensor), mine.event);
        mine.tensor.reset();
      }
      if (lent) owners.push_back(std::move(mine));
      if (random() % 3 != 0 && !owners.empty()) {
        const std::size_t victim = random() % owners.size();
        if (owners[victim].event) owners[victim].event->passed = true;
        owners.erase(owners.begin() + static_cast<std::ptrdiff_t>(victim));
      }
      EXPECT_LE(*pages.locked, 16 * kPage);
      for (const Owner& each : owners) {
        const at::Tensor& seen = each.event ? each.bytes : each.tensor;
        ASSERT_TRUE(seen.eq(each.value).all().item<bool>()) << "after " << i;
      }
    }
    for (const Owner& each : owners)
      if (each.event) each.event->passed = true;
    owners.clear();
    take(pool, 1);
    EXPECT_EQ(pool.usage().free_bytes, pool.usage().bytes);
  }
}

}  // namespace staging_test
}  // namespace grapevine
