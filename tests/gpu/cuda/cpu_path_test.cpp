// The kernels of gpu/cuda, on emulated blocks of threads, against the functions of algorithms/ that
// the CPU runs (ATen's, and own loops): bit for bit, or to the tolerance that their headers state.
#include <ATen/ATen.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/kernels/sparse_vector.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "gpu/cuda/quantised.hpp"
#include "gpu/cuda/server_steps.hpp"
#include "gpu/cuda/sparse.hpp"
#include "gpu/cuda/steps.hpp"
#include "gpu/cuda/top_k.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 3, 1023, 40003};

// Memory that the emulation takes for the device's; ATen's CPU functions can use it, too.
template <class T>
struct DeviceAllocator {
  using value_type = T;
  DeviceAllocator() = default;
  template <class U>
  DeviceAllocator(const DeviceAllocator<U>&) {}  // NOLINT: implicit, as allocators are

  T* allocate(std::size_t n) {
    void* memory = nullptr;
    if (cudaMalloc(&memory, n * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, std::size_t) { cudaFree(memory); }
  friend bool operator==(const DeviceAllocator&, const DeviceAllocator&) { return true; }
  friend bool operator!=(const DeviceAllocator&, const DeviceAllocator&) { return false; }
};
template <class T>
using DeviceVector = std::vector<T, DeviceAllocator<T>>;

template <class T>
DeviceVector<T> on_device(const std::vector<T>& values) {
  return {values.begin(), values.end()};
}
template <class T>
void expect_same(const DeviceVector<T>& actual, const std::vector<T>& expected) {
  EXPECT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin(), expected.end()));
}

at::Tensor on_device(const at::Tensor& t) {
  auto* const memory = DeviceAllocator<unsigned char>().allocate(t.nbytes());
  at::Tensor copy = at::from_blob(
      memory, t.sizes(), [](void* p) { cudaFree(p); }, t.options());
  return copy.copy_(t);
}
at::Tensor room(std::int64_t n) { return on_device(at::zeros({n}, at::kFloat)); }

at::Tensor normal(std::int64_t n, std::uint64_t seed) {
  return on_device(at::randn({n}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat));
}
float* values_of(const at::Tensor& t) { return t.data_ptr<float>(); }

void require(const Expected<void>& result) { ASSERT_TRUE(result.ok()) << result.error().message; }

void expect_same_bits(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.numel(), expected.numel());
  ASSERT_TRUE(actual.view(at::kInt).equal(expected.view(at::kInt)));
}

TEST(CpuPath, OneOperationEach) {
  for (const std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const at::Tensor a = normal(n, 1), b = normal(n, 2);
    at::Tensor actual = room(n), expected = at::empty_like(a), half = room(n),
               expected_half = at::empty_like(a);
    const auto compare = [&](const Expected<void>& ran) {
      require(ran);
      expect_same_bits(actual, expected);
    };
    kernels::debias(expected, a, 0.37);
    compare(cuda::debias(values_of(actual), values_of(a), 0.37, n, nullptr));
    kernels::push_sum_fold_into(expected, expected_half, a, b, 1.0 / 3, 0.37);
    compare(cuda::fold_share(values_of(actual), values_of(half), values_of(a), values_of(b),
                             1.0 / 3, 0.37, n, nullptr));
    expect_same_bits(half, expected_half);
    kernels::meet_into(expected, expected_half, a, b);
    compare(cuda::meet_into(values_of(actual), values_of(half), values_of(a), values_of(b), n,
                            nullptr));
    expect_same_bits(half, expected_half);
  }
}

TEST(CpuPath, TheStep) {
  for (const std::int64_t n : kSizes)
    for (const double momentum : {0.0, 0.9})
      for (const bool nesterov : {false, true}) {
        SCOPED_TRACE(testing::Message() << n << ", momentum " << momentum << ", " << nesterov);
        const kernels::SgdStep step{0.1, momentum, 1e-4, nesterov, 1.0 / 3};
        const at::Tensor x = normal(n, 1), gradient = normal(n, 2), share = normal(n, 3);
        at::Tensor v = normal(n, 4), expected_v = v.clone(), folded = at::empty_like(x),
                   expected = at::empty_like(x), expected_z = at::empty_like(x), actual = room(n),
                   z = room(n);
        // The passes that the fused one replaces.
        kernels::fold_into(folded, x, share);
        kernels::sgd_step_into(expected, folded, expected_v, gradient, step);
        kernels::debias(expected_z, expected, 0.61);

        cuda::StepArrays arrays;
        arrays.out = values_of(actual), arrays.x = values_of(x), arrays.share = values_of(share);
        arrays.velocity = values_of(v), arrays.gradient = values_of(gradient),
        arrays.z = values_of(z);
        arrays.weight = 0.61;
        cuda::StepFactors factors;
        factors.lr = 0.1F, factors.momentum = static_cast<float>(momentum);
        factors.weight_decay = 1e-4F, factors.scale = static_cast<float>(1.0 / 3);
        factors.nesterov = nesterov;
        require(cuda::sgd_step(arrays, factors, n, nullptr));
        expect_same_bits(actual, expected);
        expect_same_bits(v, expected_v);
        expect_same_bits(z, expected_z);
      }
}

TEST(CpuPath, Clip) {
  for (const std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    at::Tensor x = normal(n, 1), expected = x.clone();
    const double c = 0.5 + static_cast<double>(n) / 1000;
    DeviceVector<double> workspace(cuda::clip_workspace_bytes(n) / sizeof(double)), norm(1);
    require(cuda::clip(values_of(x), c, norm.data(), workspace.data(), n, nullptr));
    const double expected_norm = kernels::clip(expected, c);
    EXPECT_NEAR(norm[0], expected_norm, 1e-13 * expected_norm);
    EXPECT_TRUE(x.allclose(expected, 1.2e-7, 0));  // the factor may round the other way
  }
}

TEST(CpuPath, Gem) {
  for (const std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    at::Tensor delta = normal(n, 1), m = normal(n, 2), u = room(n);
    at::Tensor expected_delta = delta.clone(), expected_m = m.clone(), expected = u.clone();
    const at::Tensor s = normal(n, 3), theta = normal(n, 4);
    kernels::advance_proxy(expected_delta, expected_m, s, 0.1, 0.9, 1e-4);
    require(cuda::advance_proxy(values_of(delta), values_of(m), values_of(s), 0.1F, 0.9F, 1e-4F, n,
                                nullptr));
    expect_same_bits(delta, expected_delta);
    expect_same_bits(m, expected_m);
    kernels::match_energy_into(expected, delta, m, theta, s, 2);
    require(cuda::match_energy(values_of(u), values_of(delta), values_of(m), values_of(theta),
                               values_of(s), 2, n, nullptr));
    expect_same_bits(u, expected);
  }
}

// What error feedback does with top-k: the selection, and x without it.
void check_top_k(const at::Tensor& x, std::int64_t k) {
  SCOPED_TRACE(testing::Message() << k << " of " << x.numel());
  const std::int64_t d = x.numel();
  const SparseVector expected = select_top_k(x, k);
  at::Tensor left = x.clone(), actual_left = on_device(x);
  add_entries(left, expected, -1);
  DeviceVector<std::uint32_t> indices(static_cast<std::size_t>(std::min(k, d))), count(1);
  DeviceVector<float> values(indices.size());
  DeviceVector<double> workspace(*cuda::top_k_workspace_bytes(d, k) / sizeof(double) + 2);
  for (const auto candidates : {cuda::Candidates::guessed, cuda::Candidates::all}) {
    require(cuda::top_k(indices.data(), values.data(), count.data(), values_of(actual_left), true,
                        d, k, candidates, workspace.data(), nullptr));
    if (count[0] != cuda::kMissed) break;
  }
  ASSERT_EQ(count[0], expected.size());
  indices.resize(count[0]), values.resize(count[0]);
  expect_same(indices, expected.indices);
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(std::memcmp(&values[i], &expected.values[i], sizeof(float)), 0) << "entry " << i;
  EXPECT_TRUE(actual_left.allclose(left, 0, 0, true));
}

TEST(CpuPath, TopK) {
  for (const std::int64_t n : kSizes)
    for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 100, n / 3, n}) {
      at::Tensor x = normal(n, 1);
      check_top_k(x, k);
      check_top_k(x.mul(2).round(), k);  // ties and zeros
    }
  at::Tensor x = normal(40003, 2);
  x[7] = std::numeric_limits<float>::quiet_NaN();
  x[8] = -std::numeric_limits<float>::infinity();
  check_top_k(x, 40);
  check_top_k(at::full({40003}, 1e-42F), 40);
}

TEST(CpuPath, ScatterAdd) {
  const SparseVector entries = select_top_k(normal(40003, 1), 700);
  const auto indices = on_device(entries.indices);
  const auto values = on_device(entries.values);
  at::Tensor x = normal(40003, 2), expected = x.clone();
  add_entries(expected, entries, -0.3F);
  require(cuda::add_entries(values_of(x), indices.data(), values.data(), -0.3F, entries.size(),
                            nullptr));
  expect_same_bits(x, expected);
}

// memcmp() takes no null pointer, which that of nothing is.
void expect_same_bytes(const void* a, const void* b, std::size_t bytes) {
  EXPECT_TRUE(bytes == 0 || std::memcmp(a, b, bytes) == 0);
}

std::unique_ptr<const Compressor> compressor_of(const std::string& name) {
  CompressionSettings settings;
  settings.name = name;
  return make_compressor(settings);
}

TEST(CpuPath, Int8) {
  const auto int8 = compressor_of("int8");
  for (const std::int64_t n : kSizes)
    for (const double scale : {1.0, 1e-30, 1e-44}) {
      SCOPED_TRACE(testing::Message() << n << " of size " << scale);
      const at::Tensor x = on_device(normal(n, 1).mul(scale));
      Rng rng(5), same(5);
      const Packed expected = int8->pack(x, 0, rng);
      DeviceVector<std::int8_t> values(static_cast<std::size_t>(n));
      DeviceVector<float> scales(static_cast<std::size_t>(cuda::int8_blocks(n)));
      require(cuda::int8_pack(values.data(), scales.data(), values_of(x), same(), n, nullptr));
      ASSERT_EQ(expected.scales.numel(), static_cast<std::int64_t>(scales.size()));
      expect_same_bytes(values.data(), expected.values.raw(), values.size());
      expect_same_bytes(scales.data(), expected.scales.raw(), scales.size() * sizeof(float));

      at::Tensor to = normal(n, 2), expected_to = to.clone();
      ASSERT_TRUE(int8->fold(expected_to, expected, 0.7F).ok());
      require(cuda::int8_fold(values_of(to), values.data(), scales.data(), 0.7F, n, nullptr));
      expect_same_bits(to, expected_to);
    }
}

}  // namespace
}  // namespace grapevine
