// What a group does when something is wrong, on the emulated NCCL, where faults come on demand.
#include <gtest/gtest.h>
#include <nccl.h>

#include <chrono>
#include <future>
#include <memory>
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
    auto joined = NcclCommunicator::join(NcclCommunicator::make_id().value(), 1, 0, kLong);
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    group_ = *std::move(joined);
  }
  void TearDown() override {
    emulated_nccl.gpu_is_full = false;
    emulated_nccl.remote_error = false;
    emulated_stream_is_stuck = false;
    group_ = nullptr;
    EXPECT_EQ(emulated_nccl.open, 0);
  }

  Expected<void> sum() {
    return group_->all_reduce(x_.data(), x_.data(), 4, Element::f32, nullptr, kLong);
  }

  std::vector<float> x_ = std::vector<float>(4);
  std::unique_ptr<NcclCommunicator> group_;
};

void expect_error(const Expected<void>& result, Errc code) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, code) << result.error().message;
}

// A launch that the GPU does not take holds its thread, and no one else.
TEST_F(NcclFaults, AStuckLaunchDoesNotKeepOthersFromAborting) {
  emulated_nccl.gpu_is_full = true;
  auto stuck = std::async(std::launch::async, [this] { return sum(); });
  while (emulated_nccl.launching == 0) std::this_thread::yield();
  auto aborting = std::async(std::launch::async, [this] { group_->abort(); });
  const bool aborted = aborting.wait_for(kLong) == std::future_status::ready;
  emulated_nccl.gpu_is_full = false;  // lets all go where it is not
  EXPECT_TRUE(aborted);
  expect_error(stuck.get(), Errc::peer_down);
  expect_error(group_->wait(nullptr, kLong), Errc::peer_down);
}

TEST_F(NcclFaults, ACollectiveWaitsForItsTurnWithALimit) {
  emulated_nccl.gpu_is_full = true;
  auto stuck = std::async(std::launch::async, [this] { return sum(); });
  while (emulated_nccl.launching == 0) std::this_thread::yield();
  expect_error(group_->all_reduce(x_.data(), x_.data(), 4, Element::f32, nullptr, kShort),
               Errc::timeout);
  EXPECT_EQ(stuck.wait_for(kLong), std::future_status::ready) << "the timeout ends the group";
  emulated_nccl.gpu_is_full = false;
  expect_error(stuck.get(), Errc::peer_down);
}

TEST_F(NcclFaults, AKernelThatDoesNotEndIsEnded) {
  ASSERT_TRUE(sum().ok());
  emulated_stream_is_stuck = true;
  expect_error(group_->wait(nullptr, kShort), Errc::timeout);
  EXPECT_EQ(emulated_nccl.open, 0);
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
