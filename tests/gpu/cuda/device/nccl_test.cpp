// The NCCL communicator. One GPU gives groups of one; what needs more GPUs runs where there are.
#include <gtest/gtest.h>

#ifdef GRAPEVINE_NCCL
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include "gpu/cuda/nccl_communicator.hpp"
#include "tests/gpu/cuda/device/device.hpp"

namespace grapevine::cuda {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60000};

class Nccl : public OnDevice {};

// Needs no device: what is wrong is seen before NCCL is asked.
TEST(NcclArguments, AreCheckedFirst) {
  const NcclCommunicator::Bytes id(128);
  for (const auto& joined :
       {NcclCommunicator::join({1, 2, 3}, 1, 0, kLong), NcclCommunicator::join(id, 2, 2, kLong)}) {
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, Errc::bad_input) << joined.error().message;
  }
}

TEST_F(Nccl, AGroupOfOneSumsCopiesAndGathers) {
  const auto id = NcclCommunicator::make_id();
  ASSERT_TRUE(id.ok()) << id.error().message;
  const auto group = NcclCommunicator::join(*id, 1, 0, kLong);
  ASSERT_TRUE(group.ok()) << group.error().message;
  const auto x = normal(1000, 1);
  DeviceArray<float> in(x), sum(1000), copy(1000), all(1000);
  NcclCommunicator& nccl = **group;
  require(nccl.all_reduce(sum.data(), in.data(), 1000, Element::f32, stream_, kLong));
  require(nccl.broadcast(copy.data(), in.data(), 1000, Element::f32, 0, stream_, kLong));
  require(nccl.all_gather(all.data(), in.data(), 1000, Element::f32, stream_, kLong));
  require(nccl.wait(stream_, kLong));
  require(nccl.error());
  expect_same_bits(sum.read(stream_), x);
  expect_same_bits(copy.read(stream_), x);
  expect_same_bits(all.read(stream_), x);
}

TEST_F(Nccl, APeerThatNeverComesIsATimeout) {
  const auto id = NcclCommunicator::make_id();
  ASSERT_TRUE(id.ok()) << id.error().message;
  const auto group = NcclCommunicator::join(*id, 2, 0, milliseconds(500));
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().code, Errc::timeout) << group.error().message;
}

TEST_F(Nccl, AnAbortedGroupSaysSo) {
  const auto id = NcclCommunicator::make_id();
  const auto group = NcclCommunicator::join(*id, 1, 0, kLong);
  ASSERT_TRUE(group.ok()) << group.error().message;
  require((*group)->abort());
  require((*group)->abort());
  DeviceArray<float> x(4);
  const auto after = (*group)->all_reduce(x.data(), x.data(), 4, Element::f32, stream_, kLong);
  ASSERT_FALSE(after.ok());
  EXPECT_EQ(after.error().code, Errc::peer_down);
  EXPECT_FALSE((*group)->error().ok());
}

// The stream has nothing left to do, and still: what it did may have been cut off.
TEST_F(Nccl, WaitingInAnAbortedGroupIsNoSuccess) {
  const auto id = NcclCommunicator::make_id();
  ASSERT_TRUE(id.ok()) << id.error().message;
  const auto group = NcclCommunicator::join(*id, 1, 0, kLong);
  ASSERT_TRUE(group.ok()) << group.error().message;
  DeviceArray<float> x(4);
  require((*group)->all_reduce(x.data(), x.data(), 4, Element::f32, stream_, kLong));
  require((*group)->abort());
  const auto waited = (*group)->wait(stream_, kLong);
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().code, Errc::peer_down) << waited.error().message;
}

constexpr std::int64_t kSlice = 300;

// A rank on a thread and a GPU of its own. `sum`: of 1000 elements; `all`: the slices of all.
void compute_on(int device, int size, const NcclCommunicator::Bytes& id, std::vector<float>& sum,
                std::vector<float>& all) {
  require(check(cudaSetDevice(device), "cudaSetDevice"));
  cudaStream_t stream = nullptr;
  require(check(cudaStreamCreate(&stream), "cudaStreamCreate"));
  auto group = NcclCommunicator::join(id, size, device, kLong);
  if (!group) throw std::runtime_error(group.error().message);
  DeviceArray<float> x(std::vector<float>(1000, static_cast<float>(device + 1)));
  require((*group)->all_reduce(x.data(), x.data(), 1000, Element::f32, stream, kLong));
  std::vector<float> slices(static_cast<std::size_t>(size * kSlice), -1);
  std::fill_n(slices.begin() + device * kSlice, kSlice, static_cast<float>(device));
  DeviceArray<float> gathered(slices);
  require((*group)->all_gather(gathered.data(), gathered.data() + device * kSlice, kSlice,
                               Element::f32, stream, kLong));
  require((*group)->wait(stream, kLong));
  sum = x.read(stream);
  all = gathered.read(stream);
  cudaStreamDestroy(stream);
}

TEST_F(Nccl, SeveralGpusSumAndGather) {
  int devices = 0;
  cudaGetDeviceCount(&devices);
  if (devices < 2) GTEST_SKIP() << "there is one GPU only: NCCL takes one rank per GPU";
  const auto id = NcclCommunicator::make_id();
  ASSERT_TRUE(id.ok()) << id.error().message;
  std::vector<std::vector<float>> results(static_cast<std::size_t>(devices)), all = results;
  std::vector<std::thread> ranks;
  for (int i = 0; i < devices; ++i)
    ranks.emplace_back([&, i] {
      try {
        compute_on(i, devices, *id, results[static_cast<std::size_t>(i)],
                   all[static_cast<std::size_t>(i)]);
      } catch (const std::exception& e) {
        ADD_FAILURE() << "rank " << i << ": " << e.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
  const auto sum = static_cast<float>(devices * (devices + 1)) / 2;
  for (const auto& result : results) expect_same_bits(result, std::vector<float>(1000, sum));
  std::vector<float> slices;
  for (int i = 0; i < devices; ++i) slices.insert(slices.end(), kSlice, static_cast<float>(i));
  for (const auto& result : all) expect_same_bits(result, slices);
}

}  // namespace
}  // namespace grapevine::cuda
#endif
