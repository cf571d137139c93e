#include "gpu/cuda/server_steps.hpp"

#include "gpu/cuda/launch.cuh"

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

}  // namespace grapevine::cuda
