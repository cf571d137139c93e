// What a group does when something is wrong, on the emulated NCCL, where faults come on demand.
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gpu/cuda/nccl_communicator.hpp"

namespace grapevine::cuda {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{10000};
constexpr milliseconds kShort{20};

class NcclFaults : public testing::Test {
 protected:
  void SetUp() override {
    aborted_before_ = emulated_nccl.aborted;
    destroyed_before_ = emulated_nccl.destroyed;
    join(kLong);
  }
  void TearDown() override {
    release();
    group_ = nullptr;
    while (emulated_nccl.open > 0 || NcclCommunicator::threads_left_behind() > 0)
      std::this_thread::yield();
    EXPECT_EQ(emulated_nccl.misused, 0) << "NCCL allows one thread at a time in a group";
  }

  // `timeout`: how long its end may take.
  void join(milliseconds timeout) {
    auto joined = NcclCommunicator::join(NcclCommunicator::make_id().value(), 1, 0, timeout);
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    group_ = *std::move(joined);
  }
  static void release() {
    emulated_nccl.gpu_is_full = false;
    emulated_nccl.remote_error = false;
    emulated_nccl.abort_hangs = false;
    emulated_nccl.finalize_hangs = false;
    emulated_nccl.version = 0;
    emulated_stream_is_stuck = false;
  }
  Expected<void> sum() {
    return group_->all_reduce(x_.data(), x_.data(), 4, Element::f32, nullptr, kLong);
  }
  int aborted() const { return emulated_nccl.aborted - aborted_before_; }
  int destroyed() const { return emulated_nccl.destroyed - destroyed_before_; }

  std::vector<float> x_ = std::vector<float>(4);
  std::unique_ptr<NcclCommunicator> group_;
  int aborted_before_ = 0;
  int destroyed_before_ = 0;
};

void expect_error(const Expected<void>& result, Errc code) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message;
}

// A launch that the GPU does not take holds its thread, and no one else; nobody aborts the group
// under it: it does so itself when it comes back.
TEST_F(NcclFaults, AStuckLaunchDoesNotKeepOthersFromAborting) {
  emulated_nccl.gpu_is_full = true;
  auto stuck = std::async(std::launch::async, [this] { return sum(); });
  while (emulated_nccl.launching == 0) std::this_thread::yield();
  auto aborting = std::async(std::launch::async, [this] { return group_->abort(); });
  const bool returned = aborting.wait_for(kLong) == std::future_status::ready;
  EXPECT_EQ(aborted(), 0);
  release();  // lets all go where it is not
  ASSERT_TRUE(returned);
  expect_error(aborting.get(), Errc::timeout);
  expect_error(stuck.get(), Errc::peer_down);
  EXPECT_EQ(aborted(), 1);
  EXPECT_TRUE(group_->abort().ok());
  expect_error(group_->wait(nullptr, kLong), Errc::peer_down);
}

TEST_F(NcclFaults, ACollectiveWaitsForItsTurnWithALimit) {
  emulated_nccl.gpu_is_full = true;
  auto stuck = std::async(std::launch::async, [this] { return sum(); });
  while (emulated_nccl.launching == 0) std::this_thread::yield();
  expect_error(group_->all_reduce(x_.data(), x_.data(), 4, Element::f32, nullptr, kShort),
               Errc::timeout);
  release();
  expect_error(stuck.get(), Errc::peer_down);
  EXPECT_EQ(aborted(), 1);
}

// NCCL joins threads and waits for the device in ncclCommAbort, where it has been seen to stay.
TEST_F(NcclFaults, AnAbortThatDoesNotReturnIsLeftBehindAndReported) {
  group_ = nullptr;
  join(kShort);
  ASSERT_TRUE(sum().ok());
  emulated_nccl.abort_hangs = true;
  auto aborting = std::async(std::launch::async, [this] { return group_->abort(); });
  const bool returned = aborting.wait_for(kLong) == std::future_status::ready;
  EXPECT_EQ(NcclCommunicator::threads_left_behind(), 1);
  if (!returned) release();
  ASSERT_TRUE(returned);
  const auto ended = aborting.get();
  expect_error(ended, Errc::timeout);
  expect_error(group_->abort(), Errc::timeout);
  group_ = nullptr;  // does not wait either
  release();
  while (NcclCommunicator::threads_left_behind() > 0) std::this_thread::yield();
}

// Of what rescues a job that hangs, no step may hang.
TEST_F(NcclFaults, ATimeoutWhoseAbortHangsIsReported) {
  group_ = nullptr;
  join(kShort);
  ASSERT_TRUE(sum().ok());
  emulated_stream_is_stuck = true;
  emulated_nccl.abort_hangs = true;
  auto waiting = std::async(std::launch::async, [this] { return group_->wait(nullptr, kShort); });
  const bool returned = waiting.wait_for(kLong) == std::future_status::ready;
  release();
  ASSERT_TRUE(returned);
  const auto waited = waiting.get();
  expect_error(waited, Errc::timeout);
  EXPECT_NE(waited.error().message.find("still blocked"), std::string::npos)
      << waited.error().message;
}

TEST_F(NcclFaults, AGroupThatNothingWentWrongInIsNotAborted) {
  ASSERT_TRUE(sum().ok());
  group_ = nullptr;
  EXPECT_EQ(destroyed(), 1);
  EXPECT_EQ(aborted(), 0);
}

TEST_F(NcclFaults, AGroupWhoseOthersDoNotLeaveIsAborted) {
  group_ = nullptr;
  join(kShort);
  emulated_nccl.finalize_hangs = true;
  group_ = nullptr;
  EXPECT_EQ(destroyed(), 1) << "the one of SetUp()";
  EXPECT_EQ(aborted(), 1);
}

TEST_F(NcclFaults, AnotherNcclThanTheOneItWasBuiltWithIsRefused) {
  const auto join = [] {
    return NcclCommunicator::join(NcclCommunicator::make_id().value(), 1, 0, kLong);
  };
  for (const int version : {22704, 31000, NCCL_VERSION_CODE - 1}) {
    emulated_nccl.version = version;
    const auto joined = join();
    ASSERT_FALSE(joined.ok()) << version;
    EXPECT_EQ(joined.error().code, Errc::unavailable) << joined.error().message;
    EXPECT_NE(joined.error().message.find("2.28.9"), std::string::npos) << joined.error().message;
  }
  for (const int version : {NCCL_VERSION_CODE, NCCL_VERSION_CODE + 1, 22901}) {
    emulated_nccl.version = version;
    EXPECT_TRUE(join().ok()) << version;
  }
}

// Ranks of one group, each on a thread of its own.
class NcclRanks : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(emulated_nccl.open, 0);
    EXPECT_EQ(emulated_nccl.misused, 0);
  }

  using Work = std::function<void(NcclCommunicator&)>;
  static void run(int size, const Work& work) {
    const auto id = NcclCommunicator::make_id().value();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < size; ++rank)
      ranks.emplace_back([&, rank] {
        const auto group = NcclCommunicator::join(id, size, rank, kLong);
        ASSERT_TRUE(group.ok()) << group.error().message;
        work(**group);
      });
    for (std::thread& rank : ranks) rank.join();
  }
};

// In place, as a worker's devices do with the slices of z, and into other memory.
TEST_F(NcclRanks, GatherAndSumWhatAllHave) {
  constexpr std::size_t kSlice = 5;
  for (const int size : {1, 2, 3, 4}) {
    SCOPED_TRACE(size);
    run(size, [size](NcclCommunicator& group) {
      const auto ranks = static_cast<std::size_t>(size);
      std::vector<float> expected(ranks * kSlice);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i) + 1;
      const std::size_t begin = static_cast<std::size_t>(group.rank()) * kSlice;
      std::vector<float> in_place(expected.size(), -1), other(expected.size(), -1);
      std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(begin), kSlice,
                  in_place.begin() + static_cast<std::ptrdiff_t>(begin));
      const std::vector<float> own(in_place.begin() + static_cast<std::ptrdiff_t>(begin),
                                   in_place.begin() + static_cast<std::ptrdiff_t>(begin + kSlice));
      const auto n = static_cast<std::int64_t>(kSlice);
      EXPECT_TRUE(
          group
              .all_gather(in_place.data(), in_place.data() + begin, n, Element::f32, nullptr, kLong)
              .ok());
      EXPECT_TRUE(group.all_gather(other.data(), own.data(), n, Element::f32, nullptr, kLong).ok());
      EXPECT_TRUE(
          group.all_reduce(other.data(), other.data(), n * size, Element::f32, nullptr, kLong)
              .ok());
      EXPECT_TRUE(group.wait(nullptr, kLong).ok());
      EXPECT_EQ(in_place, expected);
      for (float& value : expected) value *= static_cast<float>(size);
      EXPECT_EQ(other, expected);
    });
  }
}

// One rank does not call it: the others wait in NCCL until the group is aborted for them.
TEST_F(NcclRanks, AnAbortEndsAGatherThatWaitsForARank) {
  run(3, [](NcclCommunicator& group) {
    std::vector<float> all(6);
    if (group.rank() == 0) return;
    std::atomic<bool> gathers{false};
    auto gathering = std::async(std::launch::async, [&] {
      gathers = true;
      return group.all_gather(all.data(), all.data() + 2 * group.rank(), 2, Element::f32, nullptr,
                              kLong);
    });
    while (!gathers) std::this_thread::yield();
    EXPECT_TRUE(group.abort().ok());
    expect_error(gathering.get(), Errc::peer_down);
  });
}

TEST_F(NcclFaults, AGatherOfANegativeLengthIsRefused) {
  expect_error(group_->all_gather(x_.data(), x_.data(), -1, Element::f32, nullptr, kLong),
               Errc::bad_input);
  EXPECT_TRUE(sum().ok()) << "the group is as before";
}

TEST_F(NcclFaults, AKernelThatDoesNotEndIsEnded) {
  ASSERT_TRUE(sum().ok());
  emulated_stream_is_stuck = true;
  expect_error(group_->wait(nullptr, kShort), Errc::timeout);
  EXPECT_EQ(emulated_nccl.open, 0);
}

// A process that dies while the others join: nothing else ends NCCL's initialisation before its
// deadline.
TEST_F(NcclFaults, AJoinIsGivenUpWithTheProcessThatItWaitsFor) {
  const auto id = NcclCommunicator::make_id().value();
  std::atomic<bool> asked{false}, lost{false};
  auto joining = std::async(std::launch::async, [&] {
    const auto joined = NcclCommunicator::join(id, 2, 0, kLong, [&] {
      asked = true;
      return lost.load();
    });
    return joined ? Expected<void>() : Expected<void>(joined.error());
  });
  while (!asked) std::this_thread::yield();
  EXPECT_EQ(emulated_nccl.open, 2);
  lost = true;
  expect_error(joining.get(), Errc::peer_down);
  EXPECT_EQ(emulated_nccl.open, 1) << "that of SetUp()";
  EXPECT_EQ(aborted(), 1);
}

// Whatever the stream says: its kernels would use the caller's memory after the error was told.
TEST_F(NcclFaults, AFailedPeerEndsTheGroup) {
  ASSERT_TRUE(sum().ok());
  emulated_nccl.remote_error = true;
  emulated_stream_is_stuck = true;
  expect_error(group_->wait(nullptr, kLong), Errc::peer_down);
  EXPECT_EQ(emulated_nccl.open, 0);
}

TEST_F(NcclFaults, AFailedPeerEndsACollectiveThatIsBeingTaken) {
  emulated_nccl.remote_error = true;
  expect_error(sum(), Errc::peer_down);
  EXPECT_EQ(emulated_nccl.open, 0);
}

}  // namespace
}  // namespace grapevine::cuda
