// What lets one header serve nvcc and the host's compiler: rules of single elements, and decisions,
// are written once, run on the GPU by the kernels and on the CPU by the tests that pin them.
#pragma once
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define GRAPEVINE_HD __host__ __device__
#else
#define GRAPEVINE_HD
#endif

namespace grapevine::cuda {

GRAPEVINE_HD inline std::uint32_t bits_of(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
#endif
}

GRAPEVINE_HD inline float float_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
#endif
}

// |value| as its bits: ordered as |value| is, NaNs last.
GRAPEVINE_HD inline std::uint32_t magnitude(float value) { return bits_of(value) & 0x7fffffffU; }

GRAPEVINE_HD inline float absolute(float value) { return float_of(magnitude(value)); }

// messages/random.hpp's mix_seed (SplitMix64), element by element.
GRAPEVINE_HD inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace grapevine::cuda
