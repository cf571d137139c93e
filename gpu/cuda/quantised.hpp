// Quantise and dequantise on the device: what algorithms/compressors/int8.cpp packs and folds, bit
// for bit (see quantise.hpp); the terms of steps.hpp.
#pragma once
#include <cstdint>

#include "gpu/cuda/error.hpp"
#include "gpu/cuda/quantise.hpp"

namespace grapevine::cuda {

// values[n] <- levels (signed bytes), scales[int8_blocks(n)] <- a scale for each block of
// kInt8Block; NaN where the block is not finite. Rounding is a function of the seed and the
// element. Memory: reads x once, writes n bytes.
Expected<void> int8_pack(std::int8_t* values, float* scales, const float* x, std::uint64_t seed,
                         std::int64_t n, cudaStream_t stream);
// x += factor * (level * scale).
Expected<void> int8_fold(float* x, const std::int8_t* values, const float* scales, float factor,
                         std::int64_t n, cudaStream_t stream);

}  // namespace grapevine::cuda
