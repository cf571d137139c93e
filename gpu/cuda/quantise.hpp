// Numbers in fewer bits, element by element: bit-identical to
// algorithms/compressors/{int8,half}.cpp.
#pragma once
#include <cmath>

#include "gpu/cuda/portable.hpp"

namespace grapevine::cuda {

// ---- int8: a scale per block, stochastic rounding ----

constexpr std::int64_t kInt8Block = 1024;
constexpr std::uint32_t kInfinity = 0x7f800000U;

GRAPEVINE_HD inline std::int64_t int8_blocks(std::int64_t d) {
  return (d + kInt8Block - 1) / kInt8Block;
}

// Even in [0, 1) with 24 bits, a function of the seed and the element alone.
GRAPEVINE_HD inline float uniform(std::uint64_t seed, std::int64_t i) {
  return static_cast<float>(mix(seed, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-24F;
}

// Of the largest magnitude in a block; NaN where the block is not finite.
GRAPEVINE_HD inline float int8_scale(std::uint32_t most) {
  return most < kInfinity ? float_of(most) / 127.0F : float_of(0x7fc00000U);
}

// x/s rounded up or down by u in [0, 1); 0 where the block is not finite or all but zero.
GRAPEVINE_HD inline std::int8_t int8_level(float x, float scale, float u) {
  const float inverse = 1.0F / scale;
  if (!(absolute(inverse) < float_of(kInfinity))) return 0;
  const float level = std::floor(x * inverse + u);
  return static_cast<std::int8_t>(level < -127.0F ? -127.0F : 127.0F < level ? 127.0F : level);
}

// ---- 16 bits: to the nearest, ties to even; a NaN stays one ----

GRAPEVINE_HD inline std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = bits_of(value);
  if (magnitude(value) > kInfinity) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

GRAPEVINE_HD inline float from_bf16(std::uint16_t bits) {
  return float_of(static_cast<std::uint32_t>(bits) << 16);
}

// Finite numbers beyond fp16's range become its largest, 65504.
GRAPEVINE_HD inline std::uint16_t to_fp16(float value) {
  const std::uint32_t sign = (bits_of(value) >> 16) & 0x8000U;
  std::uint32_t m = magnitude(value);
  if (m > kInfinity) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (m == kInfinity) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (m >= 0x477fe000U) return static_cast<std::uint16_t>(sign | 0x7bffU);
  // Below 2^-14 the step is 2^-24, which is that of floats in [0.5, 1): the addition rounds.
  if (m < 0x38800000U)
    return static_cast<std::uint16_t>(sign | (bits_of(float_of(m) + 0.5F) - 0x3f000000U));
  m += 0xfffU + ((m >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((m - 0x38000000U) >> 13));
}

GRAPEVINE_HD inline float from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t m = bits & 0x7fffU;
  if (m >= 0x7c00U) return float_of(sign | kInfinity | ((m & 0x3ffU) << 13));
  if (m < 0x400U) return float_of(sign | bits_of(static_cast<float>(m) * 0x1p-24F));
  return float_of(sign | ((m << 13) + 0x38000000U));
}

}  // namespace grapevine::cuda
