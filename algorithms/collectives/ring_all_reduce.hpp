// Ring all-reduce: the sum of one flat tensor per rank, on every rank.
//
// Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations": reduce-scatter, then all-gather, both around a ring.
// Rounds: 2(P-1), one message each way per rank and round.
// Bytes sent by rank p: 2(P-1)/P * d * 4, the lower bound. Where P does not divide d, slices differ
// by one element and it is exactly 4(2d - |slice p+1| - |slice p+2|), indices mod P, over 2(P-1)
// messages. All ranks together always send 8(P-1)d.
// Staleness: 0. Deviations: none.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "algorithms/collectives/collective.hpp"

namespace grapevine {

// One operation of one rank, without I/O: the caller sends what start() and on_chunk() return and
// feeds in what arrives. The tensor is cut into P slices. With p = my position, round r of 0..2P-3
// sends slice p-r to the right neighbour and takes slice p-1-r from the left one (mod P). Up to
// round P-2 a taken slice is a partial sum: the own slice is added and the result sent on. The sum
// of round P-2 is complete, and from there on slices are only passed along. Each slice is summed
// once, by one rank, in ring order: the results of all ranks are bitwise equal.
//
// Copies: one slice at the start (the first message), each complete slice into the result. A sum is
// taken in the received buffer where this is its last owner, else in a new one; all-gather slices
// are passed on as the same FrozenTensor.
//
// Not thread-safe. One use: an object is one operation.
class RingAllReduce {
 public:
  // `ranks`: all participants in ring order, without duplicates; ranks[position] is this rank.
  RingAllReduce(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation);

  // Takes `input`, [d] float32, contiguous, as the memory of the result: no other handle on its
  // bytes may be in use. All ranks give the same d >= 0. REQUIRES: !started().
  std::vector<Outgoing> start(at::Tensor&& input);

  // A message from the left neighbour, in the order sent. REQUIRES: started() and !done(); chunks
  // of operations that have not started belong into a CollectiveInbox. A chunk of another
  // operation, round, slice or size is a broken invariant.
  std::vector<Outgoing> on_chunk(Chunk chunk);

  bool started() const { return started_; }
  bool done() const { return started_ && round_ == rounds(); }
  std::int64_t operation() const { return operation_; }
  // 2(P-1): messages that this rank sends, and receives, in one operation.
  std::int32_t rounds() const { return 2 * (size() - 1); }

  // [d], the sum; sole owner of its bytes. REQUIRES: done(), once.
  at::Tensor take_result();

  // Everything between two calls: messages in flight are not part of it. load() needs an object
  // that was constructed with the same arguments. Errors (bad_input): another ring, position or
  // operation, a damaged entry; the object is then as before.
  StateDict save() const;
  Expected<void> load(const StateDict& state);

 private:
  std::int32_t size() const { return static_cast<std::int32_t>(ranks_.size()); }
  // i mod P.
  std::int32_t wrap(std::int32_t i) const { return (i % size() + size()) % size(); }
  // A view of slice `index` of the tensor.
  at::Tensor slice(std::int32_t index) const;
  Outgoing to_right(std::int32_t round, std::int32_t index, FrozenTensor data) const;
  Expected<void> check_identity(const StateDict& state) const;

  // Constant after construction.
  std::vector<Rank> ranks_;
  std::int32_t position_;
  std::int64_t operation_;

  bool started_ = false;
  std::int32_t round_ = 0;  // the next one to arrive
  at::Tensor data_;         // [d]: own values in slices that are not complete, sums in the others
};

}  // namespace grapevine
