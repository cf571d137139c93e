// Selection of the k largest entries on the device: algorithms/kernels/sparse_vector.hpp's
// select_top_k, with its result bit for bit: NaNs first, of equal entries those with the lower
// index, no zeros.
//
// A threshold guessed from a sample leaves, after one pass over x, a list of a few more than k
// candidates; three histograms over the list find the k-th exactly, and one sweep over it compacts
// the selection by increasing index and takes it out of x. Where the guess was too high, or so low
// that the list overflowed, histograms and sweep read x itself. All of that is decided on the
// device: nothing waits for the host.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

// About 24 bytes for each of 2k, and for each 4096 of d 16 more. REQUIRES: 0 <= k, 0 <= d < 2^32.
std::size_t top_k_workspace_bytes(std::int64_t d, std::int64_t k);

// indices, values <- the entries, room for min(k, d) each; *count <- how many, on the device: less
// than k where fewer are not zero. `take`: x <- x without them, as error feedback keeps it (x - x,
// so that a NaN or infinity stays a NaN); else x stays as it is. The workspace is aligned to 16
// bytes and of top_k_workspace_bytes(d, k) bytes; what it held before does not matter. The other
// terms are those of steps.hpp. Memory: reads x once; five times more where the guess missed.
Expected<void> top_k(std::uint32_t* indices, float* values, std::uint32_t* count, float* x,
                     bool take, std::int64_t d, std::int64_t k, void* workspace,
                     cudaStream_t stream);

}  // namespace grapevine::cuda
