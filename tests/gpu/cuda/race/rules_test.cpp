// Each rule of checker.hpp on a kernel of its own that keeps it, and on one that breaks it, in many
// orders of blocks and threads.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/cuda/device/device.hpp"
#include "tests/gpu/cuda/race/checker.hpp"

namespace racecheck {
namespace {

using grapevine::cuda::DeviceArray;
using What = Finding::What;

template <class... Parameters, class... Arguments>
cudaError_t launch(std::uint32_t blocks, std::uint32_t threads, void (*kernel)(Parameters...),
                   Arguments... arguments) {
  cudaLaunchConfig_t config;
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

bool has(const std::vector<Finding>& findings, What what) {
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& finding) { return finding.what == what; });
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += finding.text + "\n";
  return text;
}

// Runs a launch in several orders: it must find races in all of them or in none.
template <class Run>
void expect_races(bool expected, const Run& run) {
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    emulation::reseed(seed);
    ASSERT_EQ(run(), cudaSuccess) << cudaGetErrorString(cudaErrorIllegalAddress);
    const auto findings = Checker::instance().take_findings();
    ASSERT_EQ(has(findings, What::race), expected) << "seed " << seed << "\n" << text_of(findings);
  }
}

// ---- threads of a block

enum class Order { none, votes, warp, block };

__device__ void wait(Order order) {
  if (order == Order::votes) __ballot_sync(0xffffffffU, true);
  if (order == Order::warp) __syncwarp();
  if (order == Order::block) __syncthreads();
}

// Each thread reads what the one `apart` from it has written.
__global__ void exchange(float* out, unsigned apart, Order order) {
  __shared__ float values[64];
  values[threadIdx.x] = 1;
  wait(order);
  out[blockIdx.x * 64 + threadIdx.x] = values[threadIdx.x ^ apart];
}

TEST(Rules, BarriersOrderTheirThreads) {
  DeviceArray<float> out(128);
  const auto run = [&](unsigned apart, Order order) {
    return [&out, apart, order] { return launch(2, 64, exchange, out.data(), apart, order); };
  };
  expect_races(true, run(1, Order::none));
  expect_races(true, run(1, Order::votes));  // only exchanges values
  expect_races(false, run(1, Order::warp));
  expect_races(true, run(32, Order::warp));  // another warp
  expect_races(false, run(32, Order::block));
  expect_races(false, run(0, Order::none));  // a thread's own
}

// One thread's write after the others' reads.
__global__ void overwrite(float* x, float* out, bool barrier) {
  out[threadIdx.x] = x[0];
  if (barrier) __syncthreads();
  if (threadIdx.x == 17) x[0] = 2;
}

TEST(Rules, AWriteWaitsForAllReaders) {
  DeviceArray<float> x(std::vector<float>{1}), out(64);
  expect_races(true, [&] { return launch(1, 64, overwrite, x.data(), out.data(), false); });
  expect_races(false, [&] { return launch(1, 64, overwrite, x.data(), out.data(), true); });
  // The other block's readers are at no barrier of this one.
  expect_races(true, [&] { return launch(2, 64, overwrite, x.data(), out.data(), true); });
}

__global__ void count(unsigned* counts, bool atomic) {
  if (atomic)
    atomicAdd(&counts[threadIdx.x % 4], 1U);
  else
    ++counts[threadIdx.x % 4];
}
__global__ void count_and_look(unsigned* counts, unsigned* out) {
  atomicAdd(&counts[0], 1U);
  out[blockIdx.x * blockDim.x + threadIdx.x] = counts[0];
}

TEST(Rules, AtomicsRaceWithAllButAtomics) {
  DeviceArray<unsigned> counts(std::vector<unsigned>(4)), out(64);
  expect_races(false, [&] { return launch(2, 32, count, counts.data(), true); });
  expect_races(true, [&] { return launch(2, 32, count, counts.data(), false); });
  expect_races(true, [&] { return launch(2, 32, count_and_look, counts.data(), out.data()); });
}

// Thread 0's atomic, after which it fences and reads, hides the other threads' from no one.
__global__ void count_behind(unsigned* counts, unsigned* out, bool barrier) {
  if (threadIdx.x != 0) atomicAdd(&counts[0], 1U);
  if (barrier) __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(&counts[0], 1U);
    *out = counts[0];
  }
}

TEST(Rules, ALaterAtomicHidesNoEarlierOne) {
  DeviceArray<unsigned> counts(std::vector<unsigned>(4)), out(1);
  expect_races(true, [&] { return launch(1, 32, count_behind, counts.data(), out.data(), false); });
  expect_races(false, [&] { return launch(1, 32, count_behind, counts.data(), out.data(), true); });
}

// ---- blocks

struct Passing {
  bool fence_before = true;          // by all threads, before the barrier
  bool barrier_before = true;        // before thread 0 arrives
  bool lead_fences_before = false;   // thread 0, after the barrier
  bool other_fences_before = false;  // thread 1, before the barrier
  bool one_address = true;
  bool fence_after = true;         // by all threads
  bool lead_fences_after = false;  // thread 0, before the barrier behind its arrival
  bool volatile_read = false;
};

// The last block to arrive reads what all have written.
__global__ void pass(unsigned* data, unsigned* arrived, unsigned* out, Passing p) {
  __shared__ bool last;
  data[blockIdx.x * blockDim.x + threadIdx.x] = 1;
  if (p.fence_before) __threadfence();
  if (p.other_fences_before && threadIdx.x == 1) __threadfence();
  if (p.barrier_before) __syncthreads();
  if (threadIdx.x == 0) {
    if (p.lead_fences_before) __threadfence();
    const unsigned before = atomicAdd(&arrived[p.one_address ? 0 : blockIdx.x], 1U);
    if (p.lead_fences_after) __threadfence();
    last = !p.one_address || before % gridDim.x == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  if (p.fence_after) __threadfence();
  unsigned sum = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x)
    sum += p.volatile_read ? static_cast<volatile unsigned*>(data)[i] : data[i];
  atomicAdd(out, sum);
}

class Blocks : public testing::Test {
 protected:
  void expect(bool races, const Passing& passing) {
    DeviceArray<unsigned> data(4 * 64), arrived(std::vector<unsigned>(4)),
        out(std::vector<unsigned>(1));
    expect_races(races, [&] {
      return launch(4, 64, pass, data.data(), arrived.data(), out.data(), passing);
    });
  }
};

TEST_F(Blocks, AnAtomicBetweenFencesOrders) {
  expect(false, Passing{});
  Passing p;
  p.volatile_read = true;
  expect(false, p);
  // Fences reach through barriers: one thread's are enough, where it does the atomic.
  p = {};
  p.fence_before = p.fence_after = false;
  p.lead_fences_before = p.lead_fences_after = true;
  expect(false, p);
}

TEST_F(Blocks, NothingLessOrders) {
  Passing p;
  p.fence_before = false;
  expect(true, p);
  p.other_fences_before = true;  // releases its own writes and those that it knew of
  expect(true, p);
  p = {};
  p.fence_after = false;
  expect(true, p);
  p.volatile_read = true;
  expect(true, p);
  p = {};
  p.barrier_before = false;
  expect(true, p);
  p = {};
  p.one_address = false;
  expect(true, p);
}

TEST_F(Blocks, LaunchesOrder) {
  DeviceArray<float> x(std::vector<float>(64)), out(64);
  expect_races(false, [&] {
    for (int i = 0; i < 3; ++i)
      if (const auto code = launch(1, 64, overwrite, x.data(), out.data(), true);
          code != cudaSuccess)
        return code;
    return cudaSuccess;
  });
}

// ---- parts of words

__global__ void write_bytes(unsigned char* bytes, unsigned apart) {
  bytes[threadIdx.x * apart] = 1;
}
__global__ void write_and_read_vectors(float* x, float* out, unsigned offset) {
  if (threadIdx.x == 0) {
    x[offset] = 1;
  } else {
    const float4 v = *reinterpret_cast<const float4*>(x);
    out[0] = v.x + v.w;
  }
}

TEST(Rules, BytesOfAWordAreApart) {
  DeviceArray<unsigned char> bytes(64);
  expect_races(false, [&] { return launch(1, 64, write_bytes, bytes.data(), 1U); });
  expect_races(true, [&] { return launch(1, 64, write_bytes, bytes.data(), 0U); });
  DeviceArray<float> x(8), out(1);
  const auto vectors = [&](unsigned offset) {
    return
        [&, offset] { return launch(1, 2, write_and_read_vectors, x.data(), out.data(), offset); };
  };
  expect_races(true, vectors(0));
  expect_races(true, vectors(3));
  expect_races(false, vectors(4));
}

// ---- shared memory

__global__ void read_unwritten(unsigned* out, bool by_all) {
  __shared__ unsigned value;
  if (by_all || blockIdx.x == 0) value = 1;
  out[blockIdx.x] = value;
}
__global__ void count_unwritten(unsigned* out) {
  __shared__ unsigned value;
  out[0] = atomicAdd(&value, 1U);
}

TEST(Rules, SharedMemoryIsOfItsBlockAndMustBeWritten) {
  DeviceArray<unsigned> out(8);
  ASSERT_EQ(launch(8, 1, read_unwritten, out.data(), true), cudaSuccess);
  EXPECT_TRUE(Checker::instance().take_findings().empty());
  ASSERT_EQ(launch(8, 1, read_unwritten, out.data(), false), cudaSuccess);
  const auto findings = Checker::instance().take_findings();
  EXPECT_TRUE(has(findings, What::unwritten));
  EXPECT_FALSE(has(findings, What::race)) << text_of(findings);
  EXPECT_NE(text_of(findings).find("value"), std::string::npos) << text_of(findings);
  const auto values = out.read();
  EXPECT_EQ(std::count(values.begin(), values.end(), 0xffffffffU), 7) << "it is spoiled";
  ASSERT_EQ(launch(1, 1, count_unwritten, out.data()), cudaSuccess);
  EXPECT_TRUE(has(Checker::instance().take_findings(), What::unwritten));
}

template <int kBytes>
__global__ void fill_shared(unsigned char* out) {
  __shared__ unsigned char values[kBytes];
  values[0] = 1;
  out[0] = values[0];
}

TEST(Rules, SharedMemoryHas48KiB) {
  DeviceArray<unsigned char> out(1);
  ASSERT_EQ(launch(1, 1, fill_shared<48 << 10>, out.data()), cudaSuccess);
  EXPECT_TRUE(Checker::instance().take_findings().empty());
  ASSERT_EQ(launch(1, 1, fill_shared<(48 << 10) + 1>, out.data()), cudaSuccess);
  EXPECT_TRUE(has(Checker::instance().take_findings(), What::shared_size));
}

// ---- reports

TEST(Rules, AReportNamesKernelVariableAndBothSides) {
  DeviceArray<float> out(64);
  ASSERT_EQ(launch(1, 64, exchange, out.data(), 1U, Order::none), cudaSuccess);
  const auto findings = Checker::instance().take_findings();
  ASSERT_TRUE(has(findings, What::race));
  const std::string text = text_of(findings);
  for (const char* part : {"exchange", "values", "shared", "write by block 0, thread ",
                           "read by block 0, thread ", "rules_test.cpp", "1 blocks of 64 threads"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

// ---- what is no memory of the thread

struct Inside {
  float* pointer;
};
__global__ void write_through(Inside inside) { *inside.pointer = 1; }

__global__ void write_to_neighbour() {
  __shared__ std::uintptr_t of_thread_0;
  int own = 0;
  if (threadIdx.x == 0) of_thread_0 = reinterpret_cast<std::uintptr_t>(&own);
  __syncthreads();
  if (threadIdx.x == 1) *reinterpret_cast<volatile int*>(of_thread_0) = 1;
  __syncthreads();
}

std::string illegal(cudaError_t code) {
  EXPECT_EQ(code, cudaErrorIllegalAddress);
  EXPECT_TRUE(Checker::instance().take_findings().empty());
  return cudaGetErrorString(code);
}

TEST(Rules, AKernelTouchesDeviceMemoryAlone) {
  float of_host = 0;
  EXPECT_NE(illegal(launch(1, 1, write_through, Inside{&of_host})).find("host memory"),
            std::string::npos);
  EXPECT_EQ(of_host, 0) << "the access is refused before it happens";
  float* freed = nullptr;
  {
    DeviceArray<float> x(4);
    freed = x.data();
    const std::string text = illegal(launch(1, 1, write_through, Inside{x.data() + 4 + 64}));
    EXPECT_NE(text.find("write_through"), std::string::npos) << text;
    EXPECT_NE(text.find("byte 528 of 528"), std::string::npos) << text;
    EXPECT_EQ(launch(1, 1, write_through, Inside{x.data() + 3}), cudaSuccess);
  }
  EXPECT_NE(illegal(launch(1, 1, write_through, Inside{freed})).find("cudaFree took back"),
            std::string::npos);
  EXPECT_NE(illegal(launch(1, 2, write_to_neighbour)).find("write_to_neighbour"),
            std::string::npos);
}

TEST(Rules, TheHostTouchesHostMemoryAlone) {
  DeviceArray<float> x(1);
  *x.data() = 3;
  EXPECT_TRUE(has(Checker::instance().take_findings(), What::host_access));
}

}  // namespace
}  // namespace racecheck
