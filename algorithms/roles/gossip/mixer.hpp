// Mixer: the messages of a gossip round, and their effect on the models.
//
//   shares   each rank splits its numerator x and push-sum weight w among itself and its peers
//   sums     each rank sends the sum of all shares that it ever gave to the peer: a lost message
//            loses nothing
//   replicas each rank sends compressed differences to replicas of its model that its peers keep
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// How the ranks of a round weigh what they mix.
enum class MixingRule {
  push_sum,   // evenly among the peers of a directed graph, with a weight that travels along
  symmetric,  // the graph's symmetric weights, every edge used both ways: doubly stochastic
  biased      // as push_sum, but the weight is ignored
};

class RoundPeers;

// Not thread-safe: belongs to one role.
class Mixer {
 public:
  static constexpr std::int64_t kAllRounds = std::numeric_limits<std::int64_t>::max();
  // Of a push-sum rank that gives, where it may be given nothing for long.
  static constexpr double kLeastWeight = 1.0 / 8;

  // A round that this rank begins.
  struct Round {
    Env& env;
    std::int64_t number;
    Stamp stamp;
    const RoundPeers& peers;
  };

  virtual ~Mixer() = default;
  // Ranks whose message of a round this rank folds, ascending.
  virtual std::vector<Rank> sources(std::int64_t round) const = 0;
  // Called before the optimizer's step that the push of this round follows: the factor by which
  // that step is to scale x and w in its own pass, so that push() need not; 1: none.
  virtual double scale_in_step(const Round&) { return 1; }
  // Sends this rank's part. `whole`: local steps use the whole model until fold() takes the part
  // that was given from it; else it is taken at once.
  virtual void push(const Round& round, bool whole) = 0;
  // What has arrived up to `round` enters x and w, in an order that does not depend on arrival.
  virtual void fold(Env& env, std::int64_t round) = 0;
  // As fold(), but x lacks the returned share, which the caller adds in the pass of its next step;
  // w has it. Undefined: x lacks nothing.
  virtual FrozenTensor fold_but_last(Env& env, std::int64_t round) {
    fold(env, round);
    return {};
  }

  // Members change, and no message is on its way: all that has arrived enters the model, and what
  // this rank gave leaves it, so that their sum over all ranks is kept.
  virtual void close(Env& env, const RoundPeers&) { fold(env, kAllRounds); }

  // Keeps a message until it is folded. A message of another kind, or a second one of a peer and
  // round, is a broken invariant.
  virtual void take(Envelope envelope) = 0;
  // Whether the peer's message of the round has arrived, or one that stands for it.
  virtual bool has(std::int64_t round, Rank peer) const = 0;
  // The final flush of a rank that begins no round after this one: repeats what may be lost.
  virtual void flush(const Round&) {}

  virtual void fields(Archive& a) = 0;

 protected:
  // The message of `from` with this stamp has entered the model.
  static void record_applied(Env& env, Rank from, const Stamp& stamp, const ModelState& model,
                             std::uint64_t bytes) {
    const std::int64_t age = model.step - 1 - stamp.step;
    env.record(
        {EventKind::applied, from, stamp, model.step, std::max<std::int64_t>(0, age), bytes});
  }
};

// REQUIRES: parts->graph; `model` and `pool` outlive it.
std::unique_ptr<Mixer> make_share_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                        Rank rank, ModelState& model, BufferPool& pool);
// REQUIRES besides: push-sum, and that this rank waits for no round.
std::unique_ptr<Mixer> make_sums_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                       Rank rank, ModelState& model, BufferPool& pool);

struct ReplicaUse {
  std::int64_t vectors = 1;    // of one size that make up `model`, compressed one by one
  bool rounds_differ = false;  // peers may end in different rounds
};
std::unique_ptr<Mixer> make_replica_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                          Rank rank, ModelState& model, BufferPool& pool,
                                          const ReplicaUse& use);

// Running sums, of the saved state of one rank's role: all that it ever gave, less all that it
// folded of others'. The sum over all ranks is the mass that edges owe. Without running sums:
// w = 0, x undefined.
struct OwedMass {
  at::Tensor x;  // [d] float64
  double w = 0;
};
OwedMass owed_mass(const StateDict& role);

}  // namespace grapevine
