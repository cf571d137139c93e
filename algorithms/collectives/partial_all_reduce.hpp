// Partial all-reduce: the sum of what the ranks have when the operation begins, on every rank.
//
// Source: Li et al. 2020 (eager-SGD), sections 4 and 5, and the quorum in between. No rank waits
// for one that is not ready: that one contributes zeros, at once, because its actor answers while
// its worker computes. What it has later belongs to a later operation, so nothing is lost.
// Bytes per rank: those of RingAllReduce over d, or of the reduction that is given, and 8 P log2 P
// of tally. Staleness: of the caller.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/collectives/activation.hpp"
#include "algorithms/collectives/recursive_doubling.hpp"
#include "algorithms/collectives/reduction.hpp"
#include "algorithms/collectives/ring_all_reduce.hpp"

namespace grapevine {

// One operation of one rank, without I/O. The caller sends what the calls return, feeds in what
// arrives, and contributes once the operation has begun. With the sum every rank gets the tally:
// one whole number of each rank, e.g. how many gradients its contribution holds.
// All ranks give the same trigger, and the same d. Results are bitwise equal on all ranks; where
// all ranks contribute what they would to RingAllReduce, they are those of RingAllReduce.
// Not thread-safe. One use.
class PartialAllReduce {
 public:
  // `ranks`: all participants; ranks[position] is this rank. Chunks of the operation are numbered
  // 2 operation and 2 operation + 1: see operation_of(). `compressed`: adds up in the place of a
  // ring, as this operation; it outlives this and is saved by its owner.
  PartialAllReduce(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
                   Trigger trigger, Reduction* compressed = nullptr);

  // This rank is ready; depending on the trigger this begins the operation.
  std::vector<OutgoingMessage> post();
  std::vector<OutgoingMessage> on_activate(const Activate& message);
  // May come before this rank contributes: it also says that the operation has begun.
  std::vector<OutgoingMessage> on_chunk(Chunk chunk);
  // The same for a compressed sum.
  std::vector<OutgoingMessage> on_packed(Rank from, PackedChunk chunk);

  bool posted() const { return activation_.posted(); }
  bool begun() const { return activation_.begun(); }
  bool contributed() const { return tally_.started(); }
  bool done() const { return (compressed_ ? compressed_->done() : ring_.done()) && tally_.done(); }

  // `value`: [d] float32, taken as memory of the result. `entry`: this rank's own of the tally.
  // `epoch`, `rng`: of the compressor. REQUIRES: begun(), !contributed().
  std::vector<OutgoingMessage> contribute(at::Tensor&& value, std::int64_t entry, double epoch,
                                          Rng& rng);

  struct Result {
    at::Tensor sum;                   // [d]
    std::vector<std::int64_t> tally;  // by position
  };
  // REQUIRES: done(), once.
  Result take_result();

  std::int64_t operation() const { return operation_; }
  // The operation that a chunk or an activation belongs to.
  static std::int64_t operation_of(const Chunk& chunk) { return chunk.operation / 2; }

  // As those of RingAllReduce.
  StateDict save() const;
  Expected<void> load(const StateDict& state);

 private:
  void feed(Chunk chunk, std::vector<OutgoingMessage>& out);

  std::size_t size_;
  std::int32_t position_;
  std::int64_t operation_;
  Reduction* compressed_;
  Activation activation_;
  RingAllReduce ring_;  // not used where compressed_ is
  RecursiveDoubling tally_;
  CollectiveInbox early_;  // before this rank contributes
};

}  // namespace grapevine
