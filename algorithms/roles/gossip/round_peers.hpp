// RoundPeers: the peers of a rank's gossip rounds: those that have left, and those whose part of
// the outstanding round is missing. A part of the gossip role.
#pragma once
#include <map>
#include <set>

#include "algorithms/roles/gossip/mixer.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class RoundPeers {
 public:
  // Whether the peer takes part in the round.
  bool expects(Rank peer, std::int64_t round) const;
  // Whether no peer is known to have left.
  bool all_take_part() const { return gone_.empty(); }
  // A peer takes part in no round after `last_round`; -1: it has died, what has arrived is folded.
  void leaves(Rank peer, std::int64_t last_round) { gone_[peer] = last_round; }
  // All take part again. Returns the newest round in which any took part, or `round` if it is
  // newer.
  std::int64_t return_all(std::int64_t round);

  // Finds the missing parts of a round that is outstanding now: a function of the graph, of what
  // has arrived and of the peers that have left.
  void await(const Mixer& mixer, std::int64_t round, const Membership& members);
  // A message of the peer has arrived, or it has left.
  void heard_of(const Mixer& mixer, std::int64_t round, Rank peer);
  const std::set<Rank>& awaited() const { return awaited_; }

  void fields(Archive& a);

 private:
  std::map<Rank, std::int64_t> gone_;  // peers that left, with their last round
  std::set<Rank> awaited_;
};

}  // namespace grapevine
