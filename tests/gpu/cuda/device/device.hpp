// Device memory for tests, and the reason to skip where there is none.
#pragma once
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/cuda/error.hpp"
#include "gpu/cuda/portable.hpp"

namespace grapevine::cuda {

inline void require(const Expected<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

// Room for n elements that starts `offset` elements after an address aligned to 256 bytes, between
// guards that must stay as they are.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::int64_t n, std::int64_t offset = 0) : n_(n), offset_(offset) {
    require(check(cudaMalloc(&memory_, bytes()), "cudaMalloc"));
    require(check(cudaMemsetAsync(memory_, kGuard, bytes(), nullptr), "cudaMemset"));
    wait();
  }
  explicit DeviceArray(const std::vector<T>& values, std::int64_t offset = 0)
      : DeviceArray(static_cast<std::int64_t>(values.size()), offset) {
    require(check(cudaMemcpyAsync(data(), values.data(), values.size() * sizeof(T),
                                  cudaMemcpyHostToDevice, nullptr),
                  "cudaMemcpy"));
    wait();
  }
  ~DeviceArray() { cudaFree(memory_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return static_cast<T*>(memory_) + kMargin + offset_; }

  // Waits for the stream that the kernels of these tests run on.
  std::vector<T> read(cudaStream_t stream = nullptr) {
    require(check(cudaStreamSynchronize(stream), "the kernel"));
    std::vector<T> all(static_cast<std::size_t>(n_ + offset_ + 2 * kMargin));
    require(check(cudaMemcpyAsync(all.data(), memory_, bytes(), cudaMemcpyDeviceToHost, nullptr),
                  "cudaMemcpy"));
    wait();
    const auto first = all.begin() + kMargin + offset_, last = first + n_;
    for (auto it = all.begin(); it != all.end(); ++it) {
      if (it == first) it = last;
      for (std::size_t byte = 0; byte < sizeof(T); ++byte)
        if (reinterpret_cast<const unsigned char*>(&*it)[byte] != kGuard)
          throw std::runtime_error("written outside of an array of " + std::to_string(n_));
    }
    return {first, last};
  }

 private:
  static constexpr int kGuard = 0x5a;
  static constexpr std::int64_t kMargin = 64;  // elements, a multiple of 16 bytes

  std::size_t bytes() const {
    return static_cast<std::size_t>(n_ + offset_ + 2 * kMargin) * sizeof(T);
  }
  static void wait() { require(check(cudaStreamSynchronize(nullptr), "a copy")); }

  const std::int64_t n_, offset_;
  void* memory_ = nullptr;
};

// Tests on a device: a stream of their own; skipped where there is none.
class OnDevice : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess || devices == 0)
      GTEST_SKIP() << "there is no CUDA device on this machine: "
                   << (code != cudaSuccess ? cudaGetErrorString(code) : "none was found");
    require(check(cudaStreamCreate(&stream_), "cudaStreamCreate"));
  }
  void TearDown() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  cudaStream_t stream_ = nullptr;
};

// The last is large enough for every grid to go round its loops.
#ifdef GRAPEVINE_EMULATED_CUDA
constexpr std::int64_t kLargestSize = (1 << 15) + 3;
constexpr std::int64_t kManyStretches = 600001;
#else
constexpr std::int64_t kLargestSize = (1 << 20) + 3;
constexpr std::int64_t kManyStretches = 40000001;  // more than all blocks take in one go
#endif

inline const std::vector<std::int64_t>& sizes() {
  static const std::vector<std::int64_t> all = {0, 1, 3, 4, 1023, kLargestSize};
  return all;
}

inline std::vector<float> normal(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> chance;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = chance(rng);
  return values;
}

inline std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> all;
  for (const float value : values) all.push_back(bits_of(value));
  return all;
}

// Equal bit for bit; says where not.
template <class T>
void expect_same(const std::vector<T>& actual, const std::vector<T>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_EQ(actual[i], expected[i]) << "at " << i;
}
inline void expect_same_bits(const std::vector<float>& actual, const std::vector<float>& expected) {
  expect_same(bits(actual), bits(expected));
}

}  // namespace grapevine::cuda
