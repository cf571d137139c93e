// Slices of a flat tensor, one for each rank of an exact all-reduce, and their pieces.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "algorithms/parts/recycled_memory.hpp"
#include "messages/frozen_tensor.hpp"
#include "messages/ids.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

// A piece that has just arrived is added and forwarded from the cache. Smaller pieces take less CPU
// time over tcp, larger ones are faster over ucx where ranks share cores (docs/performance.md has
// the tables).
inline constexpr std::int64_t kRingPieceElements = std::int64_t{128} << 10;  // 512 KiB

// [d] float32, contiguous.
bool is_flat_float(const at::Tensor& t);
// Into how many pieces each slice of d elements among `ranks` is cut, >= 1; where one of them lies,
// without a view of it, which would cost more than a small piece; and the view.
std::int32_t pieces_of_slice(std::int64_t d, std::int32_t ranks, std::int64_t piece_elements);
struct PieceBounds {
  std::int64_t begin = 0, length = 0;
};
PieceBounds bounds_of_piece(std::int64_t d, std::int32_t ranks, std::int32_t slice,
                            std::int32_t pieces, std::int32_t piece);
at::Tensor view_of(const at::Tensor& data, const PieceBounds& piece);

// received + other, of one size, to be sent: in the received buffer where it thaws at once, because
// a piece is large and fresh memory costs a page fault per 4 KiB. Not there where the transport
// would copy that buffer once more to send it on: in `memory` then.
at::Tensor sum_of_two(FrozenTensor received, const at::Tensor& other, const RecycledMemory& memory);

// Broken invariants: a position outside of `ranks`, a rank that is there twice, empty pieces.
void check_participants(const std::vector<Rank>& ranks, std::int32_t position,
                        std::int64_t piece_elements);
// And: a chunk whose values are not `elements` of float32.
void check_piece(const Chunk& chunk, std::int64_t elements);

}  // namespace grapevine
