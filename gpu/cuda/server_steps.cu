#include "gpu/cuda/server_steps.hpp"

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/reduce.cuh"

namespace grapevine::cuda {
namespace {

struct Proxy {
  float lr, momentum, weight_decay;
  __device__ void operator()(const float (&in)[3], float (&out)[2]) const {
    out[0] = proxy_delta(in[0], in[2], lr, weight_decay);
    out[1] = momentum * in[1] + out[0];
  }
};

struct Match {
  float kappa;
  __device__ void operator()(const float (&in)[4], float (&out)[1]) const {
    out[0] = matched(in[0], in[1], in[2], in[3], kappa);
  }
};

struct Energies {
  double moved = 0, allowed = 0;
  __device__ void add(float u, float m, float theta, float s, float kappa) {
    const float apart = theta + u - s, reach = kappa * m;
    moved += double{apart} * apart;
    allowed += double{reach} * reach;
  }
};

// partials: [2][segments of n].
__global__ void __launch_bounds__(kThreads)
    match_segments(Arrays<4, 1> arrays, std::int64_t n, bool vectors, float kappa,
                   double* partials) {
  __shared__ BlockSum::TempStorage storage;
  const auto [delta, m, theta, s] = arrays.in;
  for (std::int64_t segment = blockIdx.x; segment < segments_of(n); segment += gridDim.x) {
    const std::int64_t begin = segment * kSegment, end = min(n, begin + kSegment);
    Energies sum;
    for (std::int64_t i = begin + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
      if (vectors && i + 4 <= end) {
        float4 in[4], u;
#pragma unroll
        for (int a = 0; a < 4; ++a) in[a] = *reinterpret_cast<const float4*>(arrays.in[a] + i);
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          const float d = (&in[0].x)[lane], p = (&in[1].x)[lane], t = (&in[2].x)[lane],
                      from = (&in[3].x)[lane];
          (&u.x)[lane] = matched(d, p, t, from, kappa);
          sum.add((&u.x)[lane], p, t, from, kappa);
        }
        *reinterpret_cast<float4*>(arrays.out[0] + i) = u;
      } else {
        for (std::int64_t j = i; j < min(end, i + 4); ++j) {
          const float u = matched(delta[j], m[j], theta[j], s[j], kappa);
          arrays.out[0][j] = u;
          sum.add(u, m[j], theta[j], s[j], kappa);
        }
      }
    }
    const double moved = BlockSum(storage).Sum(sum.moved);
    __syncthreads();
    const double allowed = BlockSum(storage).Sum(sum.allowed);
    __syncthreads();
    if (threadIdx.x == 0) {
      partials[segment] = moved;
      partials[segments_of(n) + segment] = allowed;
    }
  }
}

// One block for each of the two sums.
__global__ void __launch_bounds__(kThreads)
    finish_energies(const double* partials, std::int64_t count, double* energies) {
  __shared__ BlockSum::TempStorage storage;
  const double sum = sum_of_partials(partials + blockIdx.x * count, count, storage);
  if (threadIdx.x == 0) energies[blockIdx.x] = sum;
}

}  // namespace

Expected<void> advance_proxy(float* gradient, float* m, const float* s, float lr, float momentum,
                             float weight_decay, std::int64_t n, cudaStream_t stream) {
  return map("advance_proxy", Arrays<3, 2>{{gradient, m, s}, {gradient, m}}, n,
             Proxy{lr, momentum, weight_decay}, stream);
}

Expected<void> match_energy(float* u, const float* delta, const float* m, const float* theta,
                            const float* s, float kappa, std::int64_t n, cudaStream_t stream) {
  return map("match_energy", Arrays<4, 1>{{delta, m, theta, s}, {u}}, n, Match{kappa}, stream);
}

std::size_t match_energy_workspace_bytes(std::int64_t n) {
  return static_cast<std::size_t>(segments_of(n)) * 2 * sizeof(double);
}

Expected<void> match_energy_and_sum(float* u, const float* delta, const float* m,
                                    const float* theta, const float* s, float kappa,
                                    double* energies, void* workspace, std::int64_t n,
                                    cudaStream_t stream) {
  if (n < 0) return refused("match_energy_and_sum", "a negative length");
  const auto blocks = segment_blocks(n);
  if (!blocks) return blocks.error();
  auto* const partials = static_cast<double*>(workspace);
  const Arrays<4, 1> arrays{{delta, m, theta, s}, {u}};
  const bool vectors = aligned({u, delta, m, theta, s});
  return Chain("match_energy_and_sum", stream)
      .then(match_segments, *blocks, kThreads, arrays, n, vectors, kappa, partials)
      .then(finish_energies, 2, kThreads, partials, segments_of(n), energies)
      .result();
}

}  // namespace grapevine::cuda
