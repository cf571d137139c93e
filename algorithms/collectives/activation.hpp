// Activation: when a partial collective begins.
//
// Source: Li et al. 2020, "Taming Unbalanced Training Workloads in Deep Learning with Partial
// Collective Operations" (eager-SGD), section 5: a rank that may begin an operation activates the
// others, which forward the activation. Here each rank forwards its first activation along the
// distances 1, 2, 4, … of a ring: all ranks are reached in ceil(log2 P) hops, from any initiator
// and from several at once.
// Messages per rank and operation: ceil(log2 P), of a header each; with a quorum one more.
#pragma once
#include <cstdint>
#include <vector>

#include "algorithms/collectives/collective.hpp"

namespace grapevine {

// The condition that begins an operation. All ranks give the same one for the same operation.
struct Trigger {
  enum class Kind {
    first_ready,  // solo: the first rank that is ready
    initiator,    // majority: one rank, drawn for each operation
    quorum        // the rank that counts those that are ready, once there are `count` of them
  };
  Kind kind = Kind::first_ready;
  std::int32_t position = 0;  // of the initiator, or of the rank that counts
  std::int32_t count = 1;     // quorum
};

// One operation of one rank, without I/O. Not thread-safe.
class Activation {
 public:
  // `ranks`: all participants; ranks[position] is this rank.
  Activation(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
             Trigger trigger);

  // This rank is ready. May be called again, e.g. after load() with another trigger: sends the
  // messages that are still missing.
  std::vector<OutgoingMessage> post();
  // REQUIRES: it is of this operation.
  std::vector<OutgoingMessage> on_message(const Activate& message);
  // A message of another rank shows that the operation has begun.
  std::vector<OutgoingMessage> begin();
  bool begun() const { return begun_; }
  bool posted() const { return posted_; }

  void fields(Archive& a);
  StateDict save() const { return save_state(*this); }
  Expected<void> load(const StateDict& state) { return load_state(*this, state); }

 private:
  std::vector<OutgoingMessage> count_ready();

  // Constant after construction.
  std::vector<Rank> ranks_;
  std::int32_t position_;
  std::int64_t operation_;
  Trigger trigger_;

  bool posted_ = false;
  bool begun_ = false;
  std::int32_t ready_ = 0;  // where this rank counts
};

}  // namespace grapevine
