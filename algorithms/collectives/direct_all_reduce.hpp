// Direct all-reduce: the sum of one flat tensor per rank, on every rank, in two rounds.
//
// Source: Rabenseifner 2004, "Optimization of collective reduction operations": reduce-scatter,
// then all-gather; here each by messages to all other ranks at once, as in Thakur, Rabenseifner and
// Gropp 2005 for short ones.
//
//   rank i: sends slice j of x_i to each rank j
//   rank j: s <- x_0 + x_1 + … of slice j, in the order of positions;  sends s to all
//
// Rounds: 2, where a ring has 2(P-1). A slice longer than two pieces of b = kRingPieceElements
// travels in pieces, so that one is summed while the next is on its way.
// Bytes sent by rank p: 4 ((d - |slice p|) + (P-1) |slice p|), that is 2(P-1)/P * 4 d, the lower
// bound. Messages: 2 (P-1) for each piece, as in a ring. A sum is sent to P-1 ranks as one
// FrozenTensor, where a ring makes P-1 partial sums and passes on as many. Own values are sent
// where they lie (lending_vector.hpp), so that a rank copies the sums alone, d elements. Staleness:
// 0. Deviations: pieces.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/collectives/lending_vector.hpp"
#include "algorithms/collectives/slices.hpp"
#include "algorithms/parts/recycled_memory.hpp"

namespace grapevine {

// One operation of one rank, without I/O, in the manner of RingAllReduce. All results are bitwise
// equal: each element is summed once, by one rank, in the order of positions.
//
// A rank has sent at most kWindow pieces of a slice more than it has received sums of: a slow rank
// holds up the others' memory by no more.
//
// Not thread-safe. One use: an object is one operation.
class DirectAllReduce {
 public:
  // `ranks`: all participants, without duplicates; ranks[position] is this rank. `piece_elements`
  // >= 1 must be the same on all ranks.
  DirectAllReduce(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
                  std::int64_t piece_elements = kRingPieceElements, RecycledMemory memory = {});

  // Takes `input`, [d] float32, contiguous, as the memory of the result: no other handle on its
  // bytes may be in use. All ranks give the same d >= 0. REQUIRES: !started().
  std::vector<OutgoingChunk> start(at::Tensor&& input);

  // A message of another rank, in the order sent. Its round is the sender's position, or P more
  // than that for a sum; its index is slice * pieces() + piece. REQUIRES: started() and !done().
  // A chunk that is none of these is a broken invariant.
  std::vector<OutgoingChunk> on_chunk(Chunk chunk);

  bool started() const { return started_; }
  bool done() const { return started_ && left_ == 0; }
  std::int64_t operation() const { return operation_; }
  // Of each slice, >= 1. REQUIRES: started().
  std::int32_t pieces() const { return pieces_; }
  // d. REQUIRES: started(); the result not taken.
  std::int64_t elements() const { return data_.values().numel(); }

  // The next part of each rank of which one is missing; where none is, the next sums. REQUIRES:
  // started().
  std::vector<Awaited> awaited() const;

  // [d], the sum; sole owner of its bytes. REQUIRES: done(), once.
  at::Tensor take_result();

  // Everything between two calls: messages in flight are not part of it. It is loaded by an object
  // that was constructed with the same arguments. Errors (bad_input): other ranks, position or
  // operation, a damaged entry.
  void fields(Archive& a);

 private:
  static constexpr std::int32_t kWindow = 4;

  // Of one other rank.
  struct Other {
    std::deque<FrozenTensor> parts;  // of this rank's slice, not summed yet
    std::int32_t arrived = 0;        // parts, those that are summed included
    std::int32_t sums = 0;           // pieces of its slice that have arrived
  };

  std::int32_t size() const { return static_cast<std::int32_t>(ranks_.size()); }
  Rank rank_at(std::int32_t position) const { return ranks_[static_cast<std::size_t>(position)]; }
  Other& other(std::int32_t position) { return others_[static_cast<std::size_t>(position)]; }
  PieceBounds bounds(std::int32_t slice, std::int32_t piece) const;
  void check(const Chunk& chunk) const;
  OutgoingChunk own_part(std::int32_t slice, std::int32_t piece);
  void add_complete_sums(std::vector<OutgoingChunk>& out);
  FrozenTensor sum_of(std::int32_t piece);
  bool has_all_parts() const;
  bool resume();

  // Constant after construction.
  std::vector<Rank> ranks_;
  std::int32_t position_;
  std::int64_t operation_;
  std::int64_t piece_elements_;
  RecycledMemory memory_;

  bool started_ = false;
  std::int32_t pieces_ = 1;    // constant from start() on
  std::vector<Other> others_;  // by position
  std::int32_t summed_ = 0;    // pieces of this rank's slice
  std::int64_t left_ = 0;      // messages that are still to arrive
  LendingVector data_;         // [d]: own values in pieces that are not complete, else sums
};

}  // namespace grapevine
