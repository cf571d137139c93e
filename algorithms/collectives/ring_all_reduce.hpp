// Ring all-reduce: the sum of one flat tensor per rank, on every rank.
//
// Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations": reduce-scatter, then all-gather, both around a ring.
// Rounds: 2(P-1), a message each, as long as a slice of s = ceil(d/P) elements is below two pieces
// of b = kRingPieceElements. A larger one travels in ceil(s/b) pieces, so that one is summed while
// the next is on its way: each rank sends 2(P-1) ceil(s/b) messages.
// Bytes sent by rank p: 2(P-1)/P * d * 4, the lower bound, in however many pieces. Where P does not
// divide d, slices differ by one element and it is exactly 4(2d - |slice p+1| - |slice p+2|),
// indices mod P. All ranks together always send 8(P-1)d.
// Staleness: 0. Deviations: none.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/collectives/lending_vector.hpp"
#include "algorithms/collectives/slices.hpp"
#include "algorithms/parts/recycled_memory.hpp"

namespace grapevine {

// One operation of one rank, without I/O: the caller sends the messages that start() and
// on_chunk() return, and passes in those that arrive. The tensor is cut into P slices, and each
// slice into the same number of pieces. With p = my position, round r of 0..2P-3 sends slice p-r to
// the right neighbour and takes slice p-1-r from the left one (mod P), piece after piece. Up to
// round P-2 a taken piece is a partial sum: the own values are added and the result sent on. The
// sum of round P-2 is complete, and from there on pieces are only passed along. Each element is
// summed once, by one rank, in ring order: the results of all ranks are bitwise equal, and do not
// depend on the size of the pieces.
//
// Pieces of several rounds are in flight at once: piece c of round r+1 is sent as soon as that of
// round r has arrived. Round 0 has kWindow pieces in flight, and one more for each that arrived.
//
// Copies: the own slice (the messages of round 0), each complete piece into the result. A sum is
// taken in the received buffer where this is its last owner, else in a new one; all-gather pieces
// are passed on as the same FrozenTensor.
//
// Not thread-safe. One use: an object is one operation.
class RingAllReduce {
 public:
  // `ranks`: all participants in ring order, without duplicates; ranks[position] is this rank.
  // `piece_elements` >= 1 must be the same on all ranks. `memory`: of sums that are sent.
  RingAllReduce(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
                std::int64_t piece_elements = kRingPieceElements, RecycledMemory memory = {});

  // Takes `input`, [d] float32, contiguous, as the memory of the result: no other handle on its
  // bytes may be in use. All ranks give the same d >= 0. REQUIRES: !started().
  std::vector<OutgoingChunk> start(at::Tensor&& input);

  // A message from the left neighbour, in the order sent. Its index is slice * pieces() + piece.
  // REQUIRES: started() and !done(); chunks of operations that have not started belong into a
  // CollectiveInbox. A chunk of another operation, round, slice, piece or size is a broken
  // invariant.
  std::vector<OutgoingChunk> on_chunk(Chunk chunk);

  bool started() const { return started_; }
  bool done() const { return started_ && left_ == 0; }
  std::int64_t operation() const { return operation_; }
  // 2(P-1). This rank sends, and receives, rounds() * pieces() messages.
  std::int32_t rounds() const { return 2 * (size() - 1); }
  // Of each slice, >= 1. REQUIRES: started().
  std::int32_t pieces() const { return pieces_; }
  // d. REQUIRES: started(); the result not taken.
  std::int64_t elements() const { return data_.values().numel(); }

  // The next message of the left neighbour; none at the end. REQUIRES: started().
  std::vector<Awaited> awaited() const;

  // [d], the sum; sole owner of its bytes. REQUIRES: done(), once.
  at::Tensor take_result();

  // Everything between two calls: messages in flight are not part of it. It is loaded by an object
  // that was constructed with the same arguments. Errors (bad_input): another ring, position or
  // operation, a damaged entry.
  void fields(Archive& a);

 private:
  static constexpr std::int32_t kWindow = 4;

  std::int32_t size() const { return static_cast<std::int32_t>(ranks_.size()); }
  // i mod P.
  std::int32_t wrap(std::int32_t i) const { return (i % size() + size()) % size(); }
  std::int32_t pieces_of(std::int64_t d) const {
    return pieces_of_slice(d, size(), piece_elements_);
  }
  PieceBounds bounds(std::int32_t slice, std::int32_t piece) const;
  void check(const Chunk& chunk) const;
  OutgoingChunk opening(std::int32_t piece);
  OutgoingChunk to_right(std::int32_t round, std::int32_t index, FrozenTensor data) const;
  void identity_fields(Archive& a) const;
  // Counts the saved progress; false where it does not fit data_.
  bool resume(std::int64_t started, std::int64_t pieces, const at::Tensor& arrived);

  // Constant after construction.
  std::vector<Rank> ranks_;
  std::int32_t position_;
  std::int64_t operation_;
  std::int64_t piece_elements_;
  RecycledMemory memory_;

  bool started_ = false;
  std::int32_t pieces_ = 1;            // constant from start() on
  std::vector<std::int32_t> arrived_;  // by round: pieces; never more than in the round before
  std::int64_t left_ = 0;              // messages that are still to arrive
  LendingVector data_;  // [d]: own values in pieces that are not complete, sums in the others
};

}  // namespace grapevine
