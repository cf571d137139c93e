// Recursive doubling: the sum of one small flat tensor per rank, on every rank, in few messages.
//
// Source: Thakur, Rabenseifner, Gropp 2005, "Optimization of collective communication operations in
// MPICH", section 4.5. Numbers of ranks that are not powers of two: with p' the largest power of
// two up to P, the P - p' last ranks first give their values to one of the others, and get the sum
// from it. Messages per rank: log2 p', one more or two where P is no power of two. Bytes: the whole
// tensor each time, so this is for tensors whose latency counts; RingAllReduce is for the others.
// Staleness: 0.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/parts/recycled_memory.hpp"

namespace grapevine {

// One operation of one rank, without I/O, in the manner of RingAllReduce. Both partners of a round
// add the same two values, and a + b == b + a: the results of all ranks are bitwise equal.
// Not thread-safe. One use.
class RecursiveDoubling {
 public:
  // `ranks`: all participants, the same list on all of them; ranks[position] is this rank.
  // `memory`: of sums that are sent.
  RecursiveDoubling(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
                    RecycledMemory memory = {});

  // `input`: [n], any dtype that adds; the same n and dtype on all ranks. The second one takes it
  // as the memory of the result: no other handle on its bytes may be in use. REQUIRES: !started().
  std::vector<OutgoingChunk> start(const at::Tensor& input) { return start(input.clone()); }
  std::vector<OutgoingChunk> start(at::Tensor&& input);
  // A message of this operation, in any order. REQUIRES: started(). A message that no rank can
  // have sent is a broken invariant.
  std::vector<OutgoingChunk> on_chunk(Chunk chunk);

  bool started() const { return round_ >= 0; }
  bool done() const { return round_ > last_round(); }
  std::int64_t operation() const { return operation_; }
  // n. REQUIRES: started(); the result not taken.
  std::int64_t elements() const { return sum_.numel(); }

  // The message of this round; none at the end. REQUIRES: started().
  std::vector<Awaited> awaited() const;

  // [n]. REQUIRES: done(), once.
  at::Tensor take_result();

  // As those of RingAllReduce.
  void fields(Archive& a);

 private:
  std::int32_t size() const { return static_cast<std::int32_t>(ranks_.size()); }
  bool is_extra() const { return position_ >= core_; }
  bool has_extra() const { return position_ + core_ < size(); }
  std::int32_t last_round() const { return levels_ + 1; }

  void enter(std::int32_t round, std::vector<OutgoingChunk>& out);
  void proceed(std::vector<OutgoingChunk>& out);
  bool expects(std::int32_t round) const;
  OutgoingChunk message(std::int32_t to, std::int32_t round) const;
  void early_field(Archive& a, std::int32_t round);

  // Constant after construction.
  std::vector<Rank> ranks_;
  std::int32_t position_;
  std::int64_t operation_;
  RecycledMemory memory_;
  std::int32_t core_ = 1;    // p'
  std::int32_t levels_ = 0;  // log2 p'

  // Round 0 takes the extra rank's values in, rounds 1..levels_ double, round levels_ + 1 hands the
  // sum to the extra rank.
  std::int32_t round_ = -1;
  at::Tensor sum_;
  std::map<std::int32_t, FrozenTensor> early_;  // by round
};

}  // namespace grapevine
