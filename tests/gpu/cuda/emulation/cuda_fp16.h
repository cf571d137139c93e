// Conversions to and from fp16, by the rules that quantise.hpp states and cpu_path_test.cpp pins.
// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
#pragma once
#include "gpu/cuda/quantise.hpp"

struct __half {
  std::uint16_t bits;
};
inline __half __float2half_rn(float value) { return {grapevine::cuda::to_fp16(value)}; }
inline float __half2float(__half value) { return grapevine::cuda::from_fp16(value.bits); }
inline std::uint16_t __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(std::uint16_t bits) { return {bits}; }
// NOLINTEND(readability-identifier-naming)
