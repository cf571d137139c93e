// Selection of the k largest entries on the device: algorithms/kernels/sparse_vector.hpp's
// select_top_k, with its result bit for bit: NaNs first, of equal entries those with the lower
// index, no zeros.
//
// A threshold guessed from a sample leaves, after one pass over x (CUB's DeviceSelect), a list of a
// few more than k candidates by index; histograms over the list find the k-th exactly, and another
// DeviceSelect over it gives the selection. Where the guess was too high, or so low that the list
// overflows, it has missed: the caller, which learns the count anyway, selects without a guess, by
// the same steps over x itself.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

enum class Candidates {
  guessed,  // where a guess is worth it: else as `all`
  all       // every entry that is not zero
};

// As a count: the guess has missed; nothing was selected, and x is as it was.
constexpr std::uint32_t kMissed = 0xffffffffU;

// 128 KiB, 4 bytes for each of at least 2k, and CUB's. REQUIRES: 0 <= k, 0 <= d < 2^32. Errors: no
// device.
Expected<std::size_t> top_k_workspace_bytes(std::int64_t d, std::int64_t k);

// indices, values <- the entries, room for min(k, d) each; *count <- how many, on the device: less
// than k where fewer are not zero, or kMissed. `take`: x <- x without them, as error feedback keeps
// it (x - x, so that a NaN or infinity stays a NaN); else x stays as it is. The workspace is
// aligned to 16 bytes and of top_k_workspace_bytes(d, k) bytes; what it held before does not
// matter. The other terms are those of steps.hpp. Memory: reads x once; without a guess four to
// seven times.
Expected<void> top_k(std::uint32_t* indices, float* values, std::uint32_t* count, float* x,
                     bool take, std::int64_t d, std::int64_t k, Candidates candidates,
                     void* workspace, cudaStream_t stream);

}  // namespace grapevine::cuda
