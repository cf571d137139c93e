// ShareSplit: the shares that a rank gives in a round, and its model without them. A part of
// mixers.
//
//   give W_k[j][i] (x, w) to each j;  keep W_k[i][i] (x, w)
//
// An averaging weight is a multiple of 2^-24, so that x and w are scaled by the same number and the
//   weights of a round add up to exactly 1 (w itself is rounded on irregular directed graphs);
//   where weights differ, a tensor of d and a pass for each.
// Once peers have left, the graph among the others may lead away from a rank and not back.
//   A rank of push-sum weight below 1/8 then gives 2^-24 of its mass along each edge, the least
//   weight. Every column-stochastic matrix conserves the mass. Without this bound w halves in every
//   such round, and a gradient moves z = x/w by gamma/w.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/graphs/shares.hpp"
#include "algorithms/roles/gossip/mixer.hpp"

namespace grapevine {

// Not thread-safe: belongs to one mixer.
class ShareSplit {
 public:
  struct Gift {
    Rank to = 0;
    double w = 0;
    FrozenTensor x;  // [d]
  };

  // `model` and `pool` outlive it.
  ShareSplit(std::shared_ptr<const SharedParts> parts, MixingRule rule, Rank rank,
             ModelState& model, BufferPool& pool)
      : parts_(std::move(parts)), rule_(rule), rank_(rank), model_(model), pool_(pool) {}

  // Ranks that give to this one in a round, ascending.
  std::vector<Rank> sources(std::int64_t round) const;
  // Those that this one gives to, if all take part.
  std::size_t receivers(std::int64_t round) const;
  // Among the peers that take part.
  Shares shares_of(const Mixer::Round& round) const;
  // See Mixer.
  double scale_in_step(const Mixer::Round& round);
  // What this rank gives in the round. `whole`: the model stays as it is until take_given().
  std::vector<Gift> give(const Mixer::Round& round, bool whole);
  // Takes from the model what it has given and still has.
  void take_given();

  void fields(Archive& a);

 private:
  bool gives_least(const Mixer::Round& round) const;
  // The mass (x, w) that was given away and that local steps still use; x undefined: none.
  struct Given {
    FrozenTensor x;
    double w = 0;
  };

  void split(const Shares& shares, bool whole, std::map<double, FrozenTensor>& scaled);
  FrozenTensor scaled_copy(double weight);

  const std::shared_ptr<const SharedParts> parts_;
  const MixingRule rule_;
  const Rank rank_;
  ModelState& model_;
  BufferPool& pool_;

  Given given_;
  std::optional<double> w_before_;  // of a round whose kept share the step has scaled
};

}  // namespace grapevine
