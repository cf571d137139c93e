// Kernels that replace several passes, loops or calls: operators of the library "grapevine" (see
// kernels.hpp) with one function each for all devices. The CPU's loops are here or in other files;
// gpu/torch_cuda registers those for CUDA. A device with neither runs the composition of ATen calls
// where one is stated, and refuses otherwise.
//
// Tensors: flat, contiguous, on one device; float32 unless stated otherwise. A wrong type, layout
// or size is a broken invariant (GRAPEVINE_CHECK). Results are the same bits on the CPU and on
// CUDA.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "algorithms/kernels/kernels.hpp"

namespace grapevine::kernels {

// A round of push-sum around a step:
//   x' <- x + share;  out <- the stepped x';  z <- out / w
// out may be x; any other overlap is not allowed. share undefined: nothing is folded; z undefined:
// nothing is de-biased. REQUIRES: w > 0. The bits of fold_into(), sgd_step_into() and debias(), one
// after the other, in one pass on the CPU and on CUDA: reads x, share, gradient, v, writes out, v,
// z; three passes elsewhere.
void push_sum_step_into(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                        const at::Tensor& share, at::Tensor& velocity, const at::Tensor& gradient,
                        const SgdStep& step, double w);

// A round of push-sum where no step is due:
//   out <- (x + share) scale;  z <- out / w
// out may be x; any other overlap is not allowed. z undefined: nothing is de-biased.
// REQUIRES: w > 0. The bits of fold_into(), scale() and debias(), in one pass as above: reads x and
// share, writes out and z.
void push_sum_fold_into(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                        const at::Tensor& share, double scale, double w);

// A sparse vector as tensors: int32 (u32 bits) indices that increase strictly, and their values.
struct Entries {
  at::Tensor indices;
  at::Tensor values;
};

// The k largest entries of x, as select_top_k (sparse_vector.hpp) chooses them; `take` leaves x
// without them (x - x: a NaN or infinity stays a NaN). On CUDA it waits for the stream once, to
// learn how many there are. REQUIRES: k >= 0, fewer than 2^32 elements.
Entries take_top_k(at::Tensor& x, std::int64_t k, bool take);
// x += factor * entries. REQUIRES: indices below x's size.
void scatter_add(at::Tensor& x, const Entries& entries, double factor);

// int8 with a scale per block of kInt8Block, rounded by a function of seed and element: see
// compressors/int8.cpp. values: uint8 (the bits of int8) [d]; scales: [int8_blocks(d)], NaN where
// the block is not finite.
inline constexpr std::int64_t kInt8Block = 1024;
constexpr std::int64_t int8_blocks(std::int64_t d) { return (d + kInt8Block - 1) / kInt8Block; }
struct Levels {
  at::Tensor values;
  at::Tensor scales;
};
Levels int8_pack(const at::Tensor& x, std::uint64_t seed);
// x += factor * levels.
void int8_fold(at::Tensor& x, const Levels& levels, double factor);

// x rounded to the nearest of 16 bits (at::kHalf, at::kBFloat16); finite numbers beyond fp16's
// range become its largest.
at::Tensor half_pack(const at::Tensor& x, at::ScalarType dtype);
// x += factor * values, which are of either type. A factor that is no power of two may round
// differently on different devices.
void half_fold(at::Tensor& x, const at::Tensor& values, double factor);

}  // namespace grapevine::kernels
