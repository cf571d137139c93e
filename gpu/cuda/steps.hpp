// The arithmetic of algorithms/kernels/kernels.hpp on device memory, bit-identical to the CPU, but
// for clip().
//
// All launchers of gpu/cuda: pointers are to device memory of the current device, [n] float32 if
// nothing else is documented; n >= 0. They launch on `stream` and return; they wait for nothing and
// allocate nothing. Memory must live until the stream has passed. Pointers aligned to 16 bytes are
// read and written 16 bytes at a time, others element by element. Thread-safe on distinct outputs.
// Errors: failed (the launch was refused), unavailable (no device), bad_input (a broken
// requirement).
#pragma once
#include <cstddef>

#include "gpu/cuda/arithmetic.hpp"
#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

// half <- (other - x) / 2, out <- x + half; out may be x. Memory: 4 passes.
Expected<void> meet_into(float* out, float* half, const float* x, const float* other,
                         std::int64_t n, cudaStream_t stream);
// z <- x / w; z may be x. REQUIRES: w > 0. Memory: 2 passes.
Expected<void> debias(float* z, const float* x, double w, std::int64_t n, cudaStream_t stream);

// A round of push-sum around a step of SGD, in one pass:
//   x' <- x + share;  out <- the stepped x' (StepFactors, at x');  z <- out / weight
// Memory: 5 passes for x, velocity, gradient, out; 1 more for each of share and z.
struct StepArrays {
  float* out = nullptr;  // may be x
  const float* x = nullptr;
  const float* share = nullptr;  // null: nothing is folded
  float* velocity = nullptr;     // null where momentum == 0
  const float* gradient = nullptr;
  float* z = nullptr;  // null: nothing is de-biased
  double weight = 1;   // of push-sum after the fold and the scaling; REQUIRES: > 0
};
Expected<void> sgd_step(const StepArrays& arrays, const StepFactors& factors, std::int64_t n,
                        cudaStream_t stream);

// A round of push-sum without a step, in one pass:  out <- (x + share) scale;  z <- out / weight.
// out may be x; z null: nothing is de-biased. REQUIRES: weight > 0. Memory: 3 passes, 1 more for z.
Expected<void> fold_share(float* out, float* z, const float* x, const float* share, double scale,
                          double weight, std::int64_t n, cudaStream_t stream);

// x <- x min(1, c / |x|); *norm <- |x| before it, a double on the device. Summed in double
// precision over segments of fixed length in a fixed order: the same on all GPUs and with any
// grid; apart from the CPU's norm by 1e-14 of it, relatively. REQUIRES: c > 0; the workspace is
// aligned to 8 bytes. Memory: reads x; where something is clipped, reads and writes it once more.
std::size_t clip_workspace_bytes(std::int64_t n);
Expected<void> clip(float* x, double c, double* norm, void* workspace, std::int64_t n,
                    cudaStream_t stream);

}  // namespace grapevine::cuda
