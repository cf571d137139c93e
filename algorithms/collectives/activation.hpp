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
#include <optional>
#include <string>
#include <vector>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/keys.hpp"
#include "algorithms/schedules.hpp"

namespace grapevine {

// The ranks whose readiness begins an operation.
enum class ActivationPolicy {
  solo,      // the first that is ready
  majority,  // one drawn at random
  quorum     // a number of them
};

struct ActivationSettings {
  ActivationPolicy policy = ActivationPolicy::solo;
  std::optional<CountSchedule> quorum;  // by epoch; none: more than half
  // Seconds that a quorum waits for the others (Decoupled DiLoCo: Douillard et al. 2026).
  double grace = 0;
};

// The keys `activation`, `quorum` and `grace`. `fallback`: a policy by its name.
ActivationSettings read_activation(KeyReader& keys, const std::string& fallback);

// Errors (bad_input): a quorum of more than `ranks`.
Expected<void> check_quorum(const ActivationSettings& settings, std::int32_t ranks);

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
  std::int32_t all = 1;       // quorum: ranks that can be ready; they need no grace
  bool grace = false;         // quorum: others may join once `count` ranks are ready
};

// Of operation `number` at `epoch`, among `size` participants. `candidates`: the positions that
// will be ready, ascending; `seed`: the same on all ranks, for draws.
Trigger make_trigger(const ActivationSettings& settings, std::uint64_t seed, std::int64_t number,
                     double epoch, const std::vector<std::int32_t>& candidates, std::int32_t size);

// One operation of one rank, without I/O. Not thread-safe.
class Activation {
 public:
  // `ranks`: all participants; ranks[position] is this rank.
  Activation(std::vector<Rank> ranks, std::int32_t position, std::int64_t operation,
             Trigger trigger);

  // This rank is ready. May be called again, e.g. once a state is loaded, with another trigger:
  // sends the messages that are still missing.
  std::vector<OutgoingMessage> post();
  // REQUIRES: it is of this operation.
  std::vector<OutgoingMessage> on_message(const Activate& message);
  // A message of another rank shows that the operation has begun.
  std::vector<OutgoingMessage> begin();
  bool begun() const { return begun_; }
  // The rank that begins it; any, where the first one that is ready does, or a quorum. REQUIRES:
  // not begun().
  Awaited awaited() const;
  bool posted() const { return posted_; }
  // A quorum is ready, and the others have their grace: the caller sets a timer, and begins at its
  // end at the latest.
  bool in_grace() const { return in_grace_ && !begun_; }

  void fields(Archive& a);

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
  bool in_grace_ = false;
};

}  // namespace grapevine
