// Numbers in fewer bits, element by element: bit-identical to
// algorithms/compressors/int8.cpp.
#pragma once
#include <cmath>

#include "gpu/cuda/portable.hpp"

namespace grapevine::cuda {

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

}  // namespace grapevine::cuda
