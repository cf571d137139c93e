// The vector of an all-reduce: own values, which are sent where they lie, and sums in their places.
//
// Its own values cost no pass: a piece is lent to its reader, and written when its sum has arrived.
// That sum contains the piece, so that its reader has finished; a handle of another holder (a cut
// that is still being written, a transport amid its last call) may outlive it. The sum then waits,
// and at the end, where the handle is still there, the vector moves to new memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "algorithms/collectives/slices.hpp"
#include "messages/frozen_tensor.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

// Not thread-safe. One use: an object is one operation.
class LendingVector {
 public:
  // [d], contiguous: memory whose only writer this is.
  void set(at::Tensor values) { values_ = std::move(values); }
  // A handle for reading, and for saving; undefined once the vector was taken.
  const at::Tensor& values() const { return values_; }
  at::Tensor& values() { return values_; }

  // A view, for reading.
  at::Tensor at(const PieceBounds& piece) const { return view_of(values_, piece); }
  // To be sent. REQUIRES: once, before write().
  FrozenTensor lend(const PieceBounds& piece) { return lent_.lend(piece.begin, at(piece)); }
  // The piece gets the values of `sum`, at the latest when the vector is complete()d.
  void write(const PieceBounds& piece, FrozenTensor sum);
  // All that was written is in values().
  void complete();
  // REQUIRES: every piece that was lent has been written.
  at::Tensor take();

 private:
  struct Waiting {
    PieceBounds piece;
    FrozenTensor sum;
  };

  void write_waiting();

  at::Tensor values_;
  LentParts lent_;
  std::vector<Waiting> waiting_;  // for the end of handles on their pieces
};

}  // namespace grapevine
