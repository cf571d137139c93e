#include "algorithms/collectives/slices.hpp"

#include <ATen/ATen.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {
bool is_flat_float(const at::Tensor& t) {
  return t.defined() && t.dim() == 1 && t.scalar_type() == at::kFloat && t.is_contiguous();
}

std::int32_t pieces_of_slice(std::int64_t d, std::int32_t ranks, std::int64_t piece_elements) {
  const std::int64_t slice = (d + ranks - 1) / ranks;
  if (slice / 2 < piece_elements) return 1;
  return static_cast<std::int32_t>((slice + piece_elements - 1) / piece_elements);
}

PieceBounds bounds_of_piece(std::int64_t d, std::int32_t ranks, std::int32_t slice,
                            std::int32_t pieces, std::int32_t piece) {
  const std::int64_t slice_begin = d * slice / ranks;
  const std::int64_t length = d * (slice + 1) / ranks - slice_begin;
  const std::int64_t begin = length * piece / pieces;
  const std::int64_t end = length * (piece + 1) / pieces;
  return {slice_begin + begin, end - begin};
}

// As narrow() makes it, with the version counter of `data`, but without the dispatcher, whose way
// through views takes longer than the sum of a small piece.
at::Tensor view_of(const at::Tensor& data, const PieceBounds& piece) {
  if (data.requires_grad() || data.is_inference()) return data.narrow(0, piece.begin, piece.length);
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(data.storage()), data.key_set(), data.dtype());
  c10::TensorImpl& made = *view.unsafeGetTensorImpl();
  made.set_sizes_contiguous({piece.length});
  made.set_storage_offset(data.storage_offset() + piece.begin);
  made.set_version_counter(data.unsafeGetTensorImpl()->version_counter());
  return view;
}

at::Tensor sum_of_two(FrozenTensor received, const at::Tensor& other,
                      const RecycledMemory& memory) {
  if (received.thaws_at_once() && is_sent_in_place(received)) {
    at::Tensor sum = std::move(received).thaw();
    kernels::fold(sum, other);
    return sum;
  }
  at::Tensor sum = memory.take(other);
  kernels::fold_into(sum, received.read(), other);
  return sum;
}

void check_participants(const std::vector<Rank>& ranks, std::int32_t position,
                        std::int64_t piece_elements) {
  GRAPEVINE_CHECK(position >= 0 && position < static_cast<std::int32_t>(ranks.size()), "position ",
                  position, " among ", ranks.size());
  GRAPEVINE_CHECK(piece_elements >= 1, "pieces of ", piece_elements, " elements");
  std::vector<Rank> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  GRAPEVINE_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
                  "a rank is twice in the all-reduce");
}

void check_piece(const Chunk& chunk, std::int64_t elements) {
  GRAPEVINE_CHECK(
      chunk.data.defined() && is_flat_float(chunk.data.read()) && chunk.data.numel() == elements,
      "piece ", chunk.index, " of operation ", chunk.operation, " has ", chunk.data.numel(),
      " elements here, expected ", elements, " of float32");
}

}  // namespace grapevine
