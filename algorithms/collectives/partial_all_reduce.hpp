// Partial all-reduce: the sum, on every rank, of the values that are ready when it begins.
//
// Source: Li et al. 2020 (eager-SGD), sections 4 and 5, and the quorum in between. No rank waits
// for one that is not ready: that rank contributes zeros at once, because its actor answers while
// its worker computes. Its later value belongs to a later operation, so nothing is lost.
// Bytes per rank: those of the reduction, e.g. RingAllReduce over d, and 8 P log2 P of tally.
// Staleness: of the caller.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/collectives/activation.hpp"
#include "algorithms/collectives/recursive_doubling.hpp"
#include "algorithms/collectives/reduction.hpp"

namespace grapevine {

// One operation of one rank, without I/O. The caller sends the returned messages, passes in
// arriving ones, and contributes once the operation has begun. With the sum every rank gets the
// tally: one whole number of each rank, e.g. how many gradients its contribution holds.
// All ranks give the same trigger, and the same d. Results are bitwise equal on all ranks; where
// all ranks contribute their values of a RingAllReduce, they equal those of RingAllReduce.
// Not thread-safe. One use.
class PartialAllReduce {
 public:
  // `ranks`: all participants; ranks[position] is this rank. `reduction` adds up, among the same
  // ranks; consecutive operations may share one, which then stores early messages. None: an own
  // ring. Messages are numbered 2 operation and 2 operation + 1: see operation_of().
  PartialAllReduce(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
                   Trigger trigger, std::shared_ptr<Reduction> reduction = nullptr);

  // This rank is ready; depending on the trigger this begins the operation.
  std::vector<OutgoingMessage> post();
  std::vector<OutgoingMessage> on_activate(const Activate& message);
  // A chunk, or a compressed vector. May arrive before this rank contributes: it also shows that
  // the operation has begun.
  std::vector<OutgoingMessage> on_message(Rank from, Payload payload);

  // Ends the grace of a quorum, where it lasts.
  std::vector<OutgoingMessage> end_grace() {
    return in_grace() ? activation_.begin() : std::vector<OutgoingMessage>();
  }

  bool posted() const { return activation_.posted(); }
  bool in_grace() const { return activation_.in_grace(); }
  bool begun() const { return activation_.begun(); }
  bool contributed() const { return tally_.started(); }
  bool done() const { return contributed() && reduction_->done() && tally_.done(); }

  // The messages that come next, where they are missing; none where this rank is to contribute.
  std::vector<Awaited> awaited() const;

  // `value`: [d] float32, taken as memory of the result. `entry`: this rank's number in the tally.
  // `epoch`, `rng`: of the compressor. REQUIRES: begun(), !contributed().
  std::vector<OutgoingMessage> contribute(at::Tensor&& value, std::int64_t entry, double epoch,
                                          Rng& rng);

  struct Result {
    at::Tensor sum;                   // [d]
    std::vector<std::int64_t> tally;  // by position
    // The positions whose entries are above 0.
    std::vector<std::int32_t> contributors() const;
  };
  // REQUIRES: done(), once.
  Result take_result();

  std::int64_t operation() const { return operation_; }
  // The operation that a message belongs to. REQUIRES: it is an activation, a chunk or a compressed
  // vector.
  static std::int64_t operation_of(const Payload& payload);
  // The number of the chunks of its tally.
  static std::int64_t tally_of(std::int64_t operation) { return 2 * operation + 1; }
  // Whether a message is for the reduction, not for the tally or the activation.
  static bool is_part_of_sum(const Payload& payload);

  // The state since construction, the reduction's included, for an object with the same arguments.
  // `epoch`: the one of contribute(), also where that follows. Errors (bad_input):
  // entries that are missing or damaged.
  void fields(Archive& a, double epoch);

 private:
  std::size_t size_;
  std::int32_t position_;
  std::int64_t operation_;
  std::shared_ptr<Reduction> reduction_;
  Activation activation_;
  RecursiveDoubling tally_;
  CollectiveInbox early_;  // of the tally, before this rank contributes
};

}  // namespace grapevine
