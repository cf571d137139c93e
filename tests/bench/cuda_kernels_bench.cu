// Times the kernels of gpu/cuda on the GPU that is there: cuda_kernels_bench [ELEMENTS [ROUNDS]].
// Each kernel's floor is the bytes that it must move at the bandwidth that a copy on the device has
// in the same run. Rounds interleave the kernels and the copy, so that a clock that changes meets
// all of them; a row gives the median by device events. Results are checked against the rules
// first. Needs neither LibTorch nor CAF nor GoogleTest.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu/cuda/quantised.hpp"
#include "gpu/cuda/selection.hpp"
#include "gpu/cuda/server_steps.hpp"
#include "gpu/cuda/sparse.hpp"
#include "gpu/cuda/steps.hpp"
#include "gpu/cuda/top_k.hpp"

namespace grapevine::cuda {
namespace {

constexpr double kDensity = 0.001;

void require(const Expected<void>& result) {
  if (!result) throw std::runtime_error(result.error().message);
}
void require(cudaError_t code, const char* what) { require(check(code, what)); }

template <class T>
class Buffer {
 public:
  explicit Buffer(std::int64_t n) : n_(n) {
    require(cudaMalloc(&memory_, std::max<std::size_t>(bytes(), 16)), "cudaMalloc");
  }
  explicit Buffer(const std::vector<T>& values) : Buffer(static_cast<std::int64_t>(values.size())) {
    write(values);
  }
  ~Buffer() { cudaFree(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return static_cast<T*>(memory_); }
  std::size_t bytes() const { return static_cast<std::size_t>(n_) * sizeof(T); }
  void write(const std::vector<T>& values) {
    require(cudaMemcpy(memory_, values.data(), bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  std::vector<T> read() {
    std::vector<T> values(static_cast<std::size_t>(n_));
    require(cudaMemcpy(values.data(), memory_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }

 private:
  const std::int64_t n_;
  void* memory_ = nullptr;
};

std::vector<float> normal(std::int64_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> chance;
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& v : values) v = chance(rng);
  return values;
}

// What all kernels work on.
struct Arena {
  explicit Arena(std::int64_t n, cudaStream_t s)
      : d(n), k(std::max<std::int64_t>(1, static_cast<std::int64_t>(kDensity * n))), stream(s) {}

  const std::int64_t d, k;
  const cudaStream_t stream;
  Buffer<float> x{normal(d, 1)}, g{normal(d, 2)}, v{normal(d, 3)}, share{normal(d, 4)};
  Buffer<float> out{d}, z{d}, selected{normal(d, 5)};
  Buffer<std::uint32_t> indices{k}, count{1};
  Buffer<float> values{k}, scales{int8_blocks(d)};
  Buffer<std::int8_t> levels{d};
  Buffer<double> norm{1};
  Buffer<unsigned char> top_k_room{static_cast<std::int64_t>(top_k_workspace_bytes(d, k).value())};
  Buffer<unsigned char> clip_room{static_cast<std::int64_t>(clip_workspace_bytes(d))};
};

StepFactors factors() {
  StepFactors f;
  f.lr = 1e-6F, f.momentum = 0.9F, f.weight_decay = 1e-4F, f.scale = 0.5F, f.nesterov = true;
  return f;
}

StepArrays step_arrays(Arena& a, bool fused) {
  StepArrays arrays;
  arrays.out = a.out.data(), arrays.x = a.x.data(), arrays.velocity = a.v.data();
  arrays.gradient = a.g.data(), arrays.weight = 0.5;
  if (fused) arrays.share = a.share.data(), arrays.z = a.z.data();
  return arrays;
}

Expected<void> select(Arena& a, Buffer<std::uint32_t>& indices, Buffer<float>& values, float* x) {
  return top_k(indices.data(), values.data(), a.count.data(), x, false, a.d, a.k,
               Candidates::guessed, a.top_k_room.data(), a.stream);
}

// ---- the kernels; bytes as each one's header counts them ----

struct Kernel {
  std::string name;
  double bytes;
  std::function<Expected<void>()> run;
  std::vector<float> microseconds = {};
};

std::vector<Kernel> kernels_on(Arena& a) {
  const double f = 4.0 * static_cast<double>(a.d);  // a pass over d floats
  const double list = 8.0 * static_cast<double>(a.k);
  const std::int64_t d = a.d, k = a.k;
  const cudaStream_t s = a.stream;
  return {
      {"copy (cudaMemcpyAsync)", 2 * f,
       [&a, s] {
         return check(
             cudaMemcpyAsync(a.out.data(), a.x.data(), a.x.bytes(), cudaMemcpyDeviceToDevice, s),
             "copy");
       }},
      {"meet (delta averaging)", 4 * f,
       [&a, d, s] { return meet_into(a.out.data(), a.z.data(), a.x.data(), a.g.data(), d, s); }},
      {"debias", 2 * f, [&a, d, s] { return debias(a.z.data(), a.x.data(), 0.5, d, s); }},
      {"sgd step, nesterov", 5 * f,
       [&a, d, s] { return sgd_step(step_arrays(a, false), factors(), d, s); }},
      {"fold + step + scale + debias", 7 * f,
       [&a, d, s] { return sgd_step(step_arrays(a, true), factors(), d, s); }},
      {"fold + scale + debias", 4 * f,
       [&a, d, s] {
         return fold_share(a.out.data(), a.z.data(), a.x.data(), a.share.data(), 0.5, 0.5, d, s);
       }},
      {"clip, nothing to clip", f,
       [&a, d, s] { return clip(a.x.data(), 1e30, a.norm.data(), a.clip_room.data(), d, s); }},
      {"gem proxy", 5 * f,
       [&a, d, s] {
         return advance_proxy(a.out.data(), a.z.data(), a.x.data(), 0.1F, 0.9F, 1e-4F, d, s);
       }},
      {"gem rescale", 5 * f,
       [&a, d, s] {
         return match_energy(a.out.data(), a.g.data(), a.v.data(), a.x.data(), a.share.data(), 2, d,
                             s);
       }},
      {"int8 pack", 1.25 * f,
       [&a, d, s] { return int8_pack(a.levels.data(), a.scales.data(), a.x.data(), 7, d, s); }},
      {"int8 fold", 2.25 * f,
       [&a, d, s] { return int8_fold(a.out.data(), a.levels.data(), a.scales.data(), 1, d, s); }},
      {"top-k 0.001", f + list, [&a] { return select(a, a.indices, a.values, a.selected.data()); }},
      {"scatter-add of k", 2 * list,
       [&a, k, s] {
         return add_entries(a.z.data(), a.indices.data(), a.values.data(), 1e-3F, k, s);
       }},
  };
}

// ---- checks ----

void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error("wrong result: " + what);
}

void check_step(Arena& a) {
  const auto x = a.x.read(), g = a.g.read(), share = a.share.read();
  auto v = a.v.read();
  require(sgd_step(step_arrays(a, true), factors(), a.d, a.stream));
  require(cudaStreamSynchronize(a.stream), "the step");
  const auto out = a.out.read(), z = a.z.read();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float expected = stepped<true, true>(x[i] + share[i], g[i], v[i], factors());
    expect(out[i] == expected && z[i] == expected / 0.5F, "step, at " + std::to_string(i));
  }
  expect(a.v.read() == v, "velocity");
}

// Also fills the list that the scatter-add is timed with.
void check_top_k(Arena& a) {
  const auto x = a.selected.read();
  require(select(a, a.indices, a.values, a.selected.data()));
  require(cudaStreamSynchronize(a.stream), "top-k");
  expect(a.count.read()[0] == static_cast<std::uint32_t>(a.k), "number of entries");
  auto sizes = x;
  for (float& s : sizes) s = absolute(s);
  std::nth_element(sizes.begin(), sizes.begin() + (a.k - 1), sizes.end(), std::greater<>());
  const float least = sizes[static_cast<std::size_t>(a.k - 1)];
  const auto indices = a.indices.read();
  const auto values = a.values.read();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    expect(i == 0 || indices[i] > indices[i - 1], "order of entries");
    expect(values[i] == x[indices[i]] && absolute(values[i]) >= least, "an entry");
  }
}

void check_int8(Arena& a) {
  const auto x = a.x.read();
  require(int8_pack(a.levels.data(), a.scales.data(), a.x.data(), 7, a.d, a.stream));
  require(cudaStreamSynchronize(a.stream), "int8");
  const auto levels = a.levels.read();
  const auto scales = a.scales.read();
  for (std::size_t i = 0; i < x.size(); ++i)
    expect(levels[i] ==
               int8_level(x[i], scales[i / kInt8Block], uniform(7, static_cast<std::int64_t>(i))),
           "int8, at " + std::to_string(i));
}

// ---- timing ----

void time_all(std::vector<Kernel>& kernels, int rounds, cudaStream_t stream) {
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin), "cudaEventCreate");
  require(cudaEventCreate(&end), "cudaEventCreate");
  constexpr int kWarmUp = 3;
  for (int round = -kWarmUp; round < rounds; ++round)
    for (Kernel& kernel : kernels) {
      require(cudaEventRecord(begin, stream), "cudaEventRecord");
      require(kernel.run());
      require(cudaEventRecord(end, stream), "cudaEventRecord");
      require(cudaEventSynchronize(end), kernel.name.c_str());
      float milliseconds = 0;
      require(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
      if (round >= 0) kernel.microseconds.push_back(1000 * milliseconds);
    }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}

double median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_table(const std::vector<Kernel>& kernels) {
  const double copy = kernels.front().bytes / median(kernels.front().microseconds);  // B/us
  std::printf("\n| kernel | bytes floor, MB | median, us | GB/s | share of copy bandwidth |\n");
  std::printf("|---|---|---|---|---|\n");
  for (const Kernel& kernel : kernels) {
    const double us = median(kernel.microseconds), bandwidth = kernel.bytes / us;
    std::printf("| %s | %.1f | %.1f | %.0f | %.2f |\n", kernel.name.c_str(), kernel.bytes / 1e6, us,
                bandwidth / 1e3, bandwidth / copy);
  }
}

int run(int argc, char** argv) {
  const std::int64_t d = argc > 1 ? std::atoll(argv[1]) : std::int64_t{25} << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 50;
  if (d < 1 || d > 0xffffffffLL || rounds < 1)
    throw std::runtime_error("usage: cuda_kernels_bench [ELEMENTS (1..2^32-1) [ROUNDS (1..)]]");
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, 0), "asking for the GPU");
  cudaStream_t stream;
  require(cudaStreamCreate(&stream), "cudaStreamCreate");
  std::printf("%s, %d streaming multiprocessors (SMs); %lld elements, median of %d rounds\n",
              properties.name, properties.multiProcessorCount, static_cast<long long>(d), rounds);
  Arena arena(d, stream);
  check_step(arena);
  check_top_k(arena);
  check_int8(arena);
  std::vector<Kernel> kernels = kernels_on(arena);
  time_all(kernels, rounds, stream);
  print_table(kernels);
  cudaStreamDestroy(stream);
  return 0;
}

}  // namespace
}  // namespace grapevine::cuda

int main(int argc, char** argv) {
  try {
    return grapevine::cuda::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
