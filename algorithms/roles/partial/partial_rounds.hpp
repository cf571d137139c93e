// PartialRounds: the rounds of the partial role and their triggers, the same on all ranks.
//
// One for each exchange of a rank and, at the end, further ones until all gradients
// of all ranks are consumed. Every sum carries the number of gradients of each rank, so no rank
// asks another. Not thread-safe.
#pragma once
#include <cstdint>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/collectives/activation.hpp"
#include "algorithms/wiring/plan.hpp"
#include "messages/ids.hpp"

namespace grapevine {

struct PartialSettings final : RoleData {
  // What a sum is divided by.
  enum class Scale {
    ranks,   // all ranks
    active,  // those with a gradient in it
    samples  // the gradients in it
  };

  ActivationSettings activation;
  // tau: the age that a gradient may have when its round begins, in rounds
  CountSchedule staleness = CountSchedule::constant(10);
  Scale scale = Scale::ranks;

  // Of a sum with this tally, the gradients of each rank in it; `local_steps`: of a difference.
  double divisor(const std::vector<std::int64_t>& tally, std::int64_t local_steps) const;
};

class PartialRounds {
 public:
  // `settings` outlives this. `seed`: the same on all ranks. `steps` and `exchanges`: of each rank.
  PartialRounds(const ActivationSettings& settings, std::uint64_t seed, Step steps,
                std::int64_t exchanges, std::int32_t ranks);

  std::int64_t now() const { return round_; }  // the present one
  std::int64_t regular_rounds_done() const { return regular_rounds_; }
  // All regular rounds are done: further ones consume the remaining gradients.
  bool draining() const { return regular_rounds_ >= regular_rounds_in_all_; }
  Step consumed(Rank rank) const { return consumed_[static_cast<std::size_t>(rank)]; }
  std::int64_t consumed_by_all() const;
  bool all_consumed() const;

  // Of the present round, which begins at `epoch`. Majority: the initiator is drawn from the seed
  // that all ranks share. Draws and quorums are among the ranks that still have gradients to
  // contribute.
  Trigger trigger(double epoch) const;

  // The present round's sum is in the model, with so many gradients of each rank.
  void consume(const std::vector<std::int64_t>& tally);
  // Begins the next round.
  void advance();
  // All ranks have consumed `steps` gradients, in `exchanges` rounds of another wiring.
  void begin_at(Step steps, std::int64_t exchanges);
  // The training was extended: `exchanges` of the longer run are done, of every rank.
  void extend(std::int64_t exchanges) {
    regular_rounds_ = exchanges;
    enter_phase();
  }

  void fields(Archive& a);
  // Among other members; `before`: see SharedParts.
  void kept_fields(Archive& a, const std::vector<std::int32_t>& before);

 private:
  // Decides whether the present round is regular.
  void enter_phase() { regular_ = !draining(); }

  std::vector<std::int32_t> unfinished() const;

  // Constant after construction.
  const ActivationSettings* settings_;
  std::uint64_t seed_;
  Step steps_;
  std::int64_t regular_rounds_in_all_;

  std::int64_t round_ = 0;
  std::int64_t regular_rounds_ = 0;     // done, without the draining ones
  bool regular_ = true;                 // the present round is not a draining one
  std::vector<std::int64_t> consumed_;  // gradients in the model, by rank
};

}  // namespace grapevine
