#include "gpu/data/batch_loader.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "tests/gpu/tiny_data.hpp"

namespace grapevine {
namespace batch_loader_test {

constexpr std::uint64_t kSeed = 4;

DataInfo slow_info() {
  DataInfo info = tiny_info();
  info.slow = true;
  return info;
}

Sampler sampler_for(const DataInfo& info) {
  return Sampler::make(kSeed, info.train_size, 2, 5).value();
}

std::shared_ptr<const TinyData> slow_data(TinyData::Hook hook = {}) {
  return std::make_shared<const TinyData>(slow_info(), std::move(hook));
}

LoaderOptions options(int threads, int depth) {
  LoaderOptions some;
  some.threads = threads;
  some.depth = depth;
  return some;
}

// Blocks readers until it is opened.
class Gate {
 public:
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

void expect_equal(const Batch& a, const Batch& b) {
  EXPECT_TRUE(a.input.equal(b.input));
  EXPECT_TRUE(a.target.equal(b.target));
}

TEST(BatchLoader, ContentDoesNotDependOnThreadsOrDepth) {
  const auto plain = std::make_shared<const TinyData>(tiny_info());
  for (const bool augment : {false, true}) {
    LoaderOptions direct = options(0, 1);
    direct.augment = augment;
    BatchLoader reference(plain, sampler_for(tiny_info()), 1, direct);
    for (const int threads : {1, 3})
      for (const int depth : {1, 2, 7}) {
        SCOPED_TRACE(testing::Message() << augment << " " << threads << " " << depth);
        LoaderOptions some = options(threads, depth);
        some.augment = augment;
        BatchLoader ahead(slow_data(), sampler_for(slow_info()), 1, some);
        for (Step step = 0; step < 20; ++step)
          expect_equal(ahead.next(step).value(), reference.next(step).value());
      }
  }
}

TEST(BatchLoader, GivesTheSamplersBatch) {
  const auto data = slow_data();
  BatchLoader loader(data, sampler_for(slow_info()), 1, options(2, 3));
  const auto expected = data->batch(Split::train, sampler_for(slow_info()).indices(1, 6), 0);
  expect_equal(loader.next(6).value(), expected.value());
}

TEST(BatchLoader, JumpsAndRepeats) {
  const auto plain = std::make_shared<const TinyData>(tiny_info());
  BatchLoader reference(plain, sampler_for(tiny_info()), 0, options(0, 1));
  BatchLoader ahead(slow_data(), sampler_for(slow_info()), 0, options(2, 4));
  for (const Step step : {5, 5, 6, 100, 101, 3, 3, 4, 0, 99, 2})
    expect_equal(ahead.next(step).value(), reference.next(step).value());
}

TEST(BatchLoader, AugmentsByEpoch) {
  LoaderOptions augment = options(0, 1);
  augment.augment = true;
  const auto plain = std::make_shared<const TinyData>(tiny_info());
  BatchLoader augmented(plain, sampler_for(tiny_info()), 0, augment);
  BatchLoader original(plain, sampler_for(tiny_info()), 0, options(0, 1));
  EXPECT_FALSE(augmented.next(0)->input.equal(original.next(0)->input));
  EXPECT_TRUE(augmented.next(0)->input.equal(augmented.next(0)->input));
}

TEST(BatchLoader, ReadsAtMostDepthAhead) {
  const auto data = slow_data();
  BatchLoader loader(data, sampler_for(slow_info()), 0, options(3, 4));
  const auto settle_at = [&](int reads) {
    for (int i = 0; i < 6000 && data->reads < reads; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    // One that knows no bound would read on meanwhile.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(data->reads, reads);
  };
  ASSERT_TRUE(loader.next(0).ok());
  settle_at(1 + 4);
  ASSERT_TRUE(loader.next(1).ok());
  settle_at(2 + 4);
}

TEST(BatchLoader, FastDataIsReadWhenAsked) {
  const auto data = std::make_shared<const TinyData>(tiny_info());
  BatchLoader loader(data, sampler_for(tiny_info()), 0, options(3, 4));
  ASSERT_TRUE(loader.next(0).ok());
  EXPECT_EQ(data->reads, 1);
}

TEST(BatchLoader, AnErrorComesAtItsOwnStep) {
  const std::vector<std::int64_t> broken = sampler_for(slow_info()).indices(0, 2);
  const auto data = slow_data([broken](const std::vector<std::int64_t>& indices) {
    return indices == broken ? Expected<void>(bad_input("image 7 is cut short")) : Expected<void>();
  });
  BatchLoader loader(data, sampler_for(slow_info()), 0, options(2, 4));
  EXPECT_TRUE(loader.next(0).ok());
  EXPECT_TRUE(loader.next(1).ok());
  const auto spoilt = loader.next(2);
  ASSERT_FALSE(spoilt.ok());
  EXPECT_EQ(spoilt.error().message, "image 7 is cut short");
  EXPECT_TRUE(loader.next(3).ok());
  EXPECT_FALSE(loader.next(2).ok());
}

TEST(BatchLoader, AnExceptionOfTheDataSetIsAnError) {
  const auto data = slow_data([](const std::vector<std::int64_t>&) -> Expected<void> {
    throw std::runtime_error("disk on fire\nand a second line");
  });
  BatchLoader loader(data, sampler_for(slow_info()), 0, options(1, 2));
  const auto failed = loader.next(0);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "reading data 'tiny': disk on fire");
}

TEST(BatchLoader, DoesNotWaitForEver) {
  Gate gate;
  const auto data = slow_data([&gate](const std::vector<std::int64_t>&) {
    gate.pass();
    return Expected<void>();
  });
  LoaderOptions impatient = options(1, 2);
  impatient.timeout = from_seconds(0.01);
  BatchLoader loader(data, sampler_for(slow_info()), 0, impatient);
  const auto late = loader.next(0);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::timeout);
  EXPECT_NE(late.error().message.find("batch of step 0 of data 'tiny'"), std::string::npos);
  gate.open();
  bool arrived = false;
  for (int tries = 0; tries < 2000 && !arrived; ++tries) arrived = loader.next(0).ok();
  EXPECT_TRUE(arrived);
}

TEST(BatchLoader, StopsInTheMiddleOfReading) {
  for (int round = 0; round < 30; ++round) {
    std::atomic<int> reading{0};
    const auto data = slow_data([&reading](const std::vector<std::int64_t>&) {
      ++reading;
      std::this_thread::yield();
      --reading;
      return Expected<void>();
    });
    {
      BatchLoader loader(data, sampler_for(slow_info()), 0, options(3, 6));
      for (Step step = 0; step < round % 4; ++step) ASSERT_TRUE(loader.next(step).ok());
    }
    EXPECT_EQ(reading, 0);
    EXPECT_EQ(data.use_count(), 1);
  }
}

TEST(BatchLoader, SaysWhetherABatchIsThere) {
  Gate gate;
  const Sampler sampler = sampler_for(slow_info());
  const auto data = slow_data([&](const std::vector<std::int64_t>& indices) -> Expected<void> {
    if (indices != sampler.indices(0, 0)) gate.pass();
    return {};
  });
  BatchLoader loader(data, sampler, 0, options(2, 3));
  EXPECT_FALSE(loader.ready(0)) << "nobody has asked for anything yet";
  ASSERT_TRUE(loader.next(0).ok());
  EXPECT_FALSE(loader.ready(1));
  gate.open();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!loader.ready(1) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_TRUE(loader.ready(1));
  EXPECT_TRUE(loader.next(1).ok());
  EXPECT_FALSE(loader.ready(1)) << "it was taken";
}

TEST(BatchLoader, WithoutReadingAheadAFastReadIsReady) {
  const Sampler sampler = sampler_for(slow_info());
  const auto fast = std::make_shared<const TinyData>(tiny_info());
  EXPECT_TRUE(BatchLoader(fast, sampler, 0, options(2, 3)).ready(7));
  EXPECT_FALSE(BatchLoader(slow_data(), sampler, 0, options(0, 3)).ready(7));
}

// Also those that were read ahead for the deal before.
TEST(BatchLoader, ANewDealGivesItsOwnBatches) {
  for (const int threads : {0, 2}) {
    SCOPED_TRACE(threads);
    const auto data = slow_data();
    const Sampler sampler = sampler_for(data->info());
    BatchLoader loader(data, sampler, 1, options(threads, 4));
    ASSERT_TRUE(loader.next(0).ok());
    ASSERT_TRUE(loader.next(1).ok());
    const Deal deal{3, 2, 4, 1};
    EXPECT_TRUE(loader.deal(deal));
    EXPECT_FALSE(loader.deal(deal)) << "it is so already";
    for (Step step = 1; step < 6; ++step) {
      SCOPED_TRACE(step);
      const Expected<Batch> batch = loader.next(step);
      ASSERT_TRUE(batch.ok()) << batch.error().message;
      const auto samples = sampler.samples_of(4 + (step - 1) * 3 + 2);
      const std::uint64_t augment = 0;
      expect_equal(*batch, data->batch(Split::train, samples, augment).value());
    }
  }
}

}  // namespace batch_loader_test
}  // namespace grapevine
