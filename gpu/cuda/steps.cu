#include "gpu/cuda/steps.hpp"

#include <cmath>
#include <string>

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/reduce.cuh"

namespace grapevine::cuda {
namespace {

struct Meet {
  __device__ void operator()(const float (&in)[2], float (&out)[2]) const {
    out[1] = halfway(in[0], in[1]);
    out[0] = in[0] + out[1];
  }
};
struct Debias {
  float w;
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const { out[0] = in[0] / w; }
};

// in: x, share; out: x, z if it is wanted.
template <bool kDebias>
struct Fold {
  float scale, weight;
  __device__ void operator()(const float (&in)[2], float (&out)[1 + kDebias]) const {
    out[0] = (in[0] + in[1]) * scale;
    if constexpr (kDebias) out[1] = out[0] / weight;
  }
};

// in: x, gradient, velocity if there is momentum, share if one is folded;
// out: x, velocity if there is momentum, z if it is wanted.
template <bool kMomentum, bool kNesterov, bool kShare, bool kDebias>
struct Step {
  static constexpr int kIn = 2 + kMomentum + kShare;
  static constexpr int kOut = 1 + kMomentum + kDebias;
  StepFactors factors;
  float weight;

  __device__ void operator()(const float (&in)[kIn], float (&out)[kOut]) const {
    float x = in[0], v = 0;
    if constexpr (kShare) x = x + in[kIn - 1];
    if constexpr (kMomentum) v = in[2];
    out[0] = stepped<kMomentum, kNesterov>(x, in[1], v, factors);
    if constexpr (kMomentum) out[1] = v;
    if constexpr (kDebias) out[kOut - 1] = out[0] / weight;
  }
};

template <bool kMomentum, bool kNesterov, bool kShare, bool kDebias>
Expected<void> launch_step(const StepArrays& a, const StepFactors& factors, std::int64_t n,
                           cudaStream_t stream) {
  using Rule = Step<kMomentum, kNesterov, kShare, kDebias>;
  Arrays<Rule::kIn, Rule::kOut> arrays{};
  arrays.in[0] = a.x;
  arrays.in[1] = a.gradient;
  if constexpr (kMomentum) arrays.in[2] = a.velocity;
  if constexpr (kShare) arrays.in[Rule::kIn - 1] = a.share;
  arrays.out[0] = a.out;
  if constexpr (kMomentum) arrays.out[1] = a.velocity;
  if constexpr (kDebias) arrays.out[Rule::kOut - 1] = a.z;
  return map("sgd_step", arrays, n, Rule{factors, static_cast<float>(a.weight)}, stream);
}

template <bool kMomentum, bool kNesterov>
Expected<void> launch_step(const StepArrays& a, const StepFactors& factors, std::int64_t n,
                           cudaStream_t stream) {
  const auto launch = a.share != nullptr ? a.z != nullptr
                                               ? launch_step<kMomentum, kNesterov, true, true>
                                               : launch_step<kMomentum, kNesterov, true, false>
                      : a.z != nullptr ? launch_step<kMomentum, kNesterov, false, true>
                                         : launch_step<kMomentum, kNesterov, false, false>;
  return launch(a, factors, n, stream);
}

// ---- clip ----

__global__ void __launch_bounds__(kThreads)
    square_segments(const float* x, std::int64_t n, bool vectors, double* partials) {
  __shared__ BlockSum::TempStorage storage;
  for (std::int64_t segment = blockIdx.x; segment < segments_of(n); segment += gridDim.x) {
    const std::int64_t begin = segment * kSegment, end = min(n, begin + kSegment);
    double sum = 0;
    // Threads take the same elements in the same order either way.
    for (std::int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
      if (vectors && i + 4 <= end) {
        const float4 v = *reinterpret_cast<const float4*>(x + i);
        sum += double{v.x} * v.x;
        sum += double{v.y} * v.y;
        sum += double{v.z} * v.z;
        sum += double{v.w} * v.w;
      } else {
        for (std::int64_t j = i; j < min(end, i + 4); ++j) sum += double{x[j]} * x[j];
      }
    }
    sum = BlockSum(storage).Sum(sum);
    if (threadIdx.x == 0) partials[segment] = sum;
    __syncthreads();  // the storage is used again
  }
}

__global__ void __launch_bounds__(kThreads)
    finish_norm(const double* partials, std::int64_t count, double* norm) {
  __shared__ BlockSum::TempStorage storage;
  const double sum = sum_of_partials(partials, count, storage);
  if (threadIdx.x == 0) *norm = std::sqrt(sum);
}

__global__ void __launch_bounds__(kThreads)
    shrink(float* x, std::int64_t n, bool vectors, double c, const double* norm) {
  if (!(*norm > c)) return;
  const auto factor = static_cast<float>(c / *norm);
  const std::int64_t whole = vectors ? n / 4 : 0;
  for (std::int64_t i = thread_index(); i < whole; i += thread_count()) {
    float4 v = reinterpret_cast<float4*>(x)[i];
    v.x *= factor;
    v.y *= factor;
    v.z *= factor;
    v.w *= factor;
    reinterpret_cast<float4*>(x)[i] = v;
  }
  for (std::int64_t i = whole * 4 + thread_index(); i < n; i += thread_count()) x[i] *= factor;
}

}  // namespace

Expected<void> meet_into(float* out, float* half, const float* x, const float* other,
                         std::int64_t n, cudaStream_t stream) {
  return map("meet_into", Arrays<2, 2>{{x, other}, {out, half}}, n, Meet{}, stream);
}

Expected<void> debias(float* z, const float* x, double w, std::int64_t n, cudaStream_t stream) {
  if (!(w > 0)) return refused("debias", "a push-sum weight of " + std::to_string(w));
  return map("debias", Arrays<1, 1>{{x}, {z}}, n, Debias{static_cast<float>(w)}, stream);
}

Expected<void> sgd_step(const StepArrays& arrays, const StepFactors& factors, std::int64_t n,
                        cudaStream_t stream) {
  if (!(arrays.weight > 0))
    return refused("sgd_step", "a push-sum weight of " + std::to_string(arrays.weight));
  if (factors.momentum == 0) return launch_step<false, false>(arrays, factors, n, stream);
  if (arrays.velocity == nullptr && n > 0) return refused("sgd_step", "momentum without velocity");
  if (factors.nesterov) return launch_step<true, true>(arrays, factors, n, stream);
  return launch_step<true, false>(arrays, factors, n, stream);
}

Expected<void> fold_share(float* out, float* z, const float* x, const float* share, double scale,
                          double weight, std::int64_t n, cudaStream_t stream) {
  if (!(weight > 0)) return refused("fold_share", "a push-sum weight of " + std::to_string(weight));
  const auto s = static_cast<float>(scale), w = static_cast<float>(weight);
  if (z == nullptr)
    return map("fold_share", Arrays<2, 1>{{x, share}, {out}}, n, Fold<false>{s, w}, stream);
  return map("fold_share", Arrays<2, 2>{{x, share}, {out, z}}, n, Fold<true>{s, w}, stream);
}

std::size_t clip_workspace_bytes(std::int64_t n) {
  return static_cast<std::size_t>(segments_of(n)) * sizeof(double);
}

Expected<void> clip(float* x, double c, double* norm, void* workspace, std::int64_t n,
                    cudaStream_t stream) {
  if (n < 0 || !(c > 0))
    return refused("clip", "a negative length, or a norm that is not positive");
  auto* const partials = static_cast<double*>(workspace);
  const auto blocks = segment_blocks(n), wide = blocks_for(n / 4);
  if (!blocks) return blocks.error();
  if (!wide) return wide.error();
  const bool vectors = aligned({x});
  return Chain("clip", stream)
      .then(square_segments, *blocks, kThreads, x, n, vectors, partials)
      .then(finish_norm, 1, kThreads, partials, segments_of(n), norm)
      .then(shrink, *wide, kThreads, x, n, vectors, c, norm)
      .result();
}

}  // namespace grapevine::cuda
