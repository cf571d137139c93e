// GossipGraph: who exchanges with whom over a whole run, and with which weights. A part.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/graphs/topology.hpp"
#include "algorithms/schedules.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// A weight rounded down to a multiple of 2^-24. float32 holds all of these up to 1, and double
// holds their sums: x and w are scaled by the same number, and what a rank keeps and gives is
// exactly 1. A weight that float32 rounds for x alone would change the mean by the same factor in
// every round.
inline double exact_weight(double weight) {
  constexpr double kUnit = 1.0 / (1 << 24);
  return std::floor(weight / kUnit) * kUnit;
}

// One rank's column of the mixing matrix of a round: what it keeps of its mass, and what it gives.
// All are exact weights, and their sum is exactly 1.
struct Shares {
  struct Link {
    Rank peer = 0;
    double weight = 0;
  };
  double kept = 1;
  std::vector<Link> links;

  // Whether every link gets what is kept.
  bool even() const {
    return std::all_of(links.begin(), links.end(),
                       [this](const Link& link) { return link.weight == kept; });
  }
};

// A topology whose number of peers follows a schedule. Everything is a pure function of the round,
// so that both ends of an edge always agree on who talks. Immutable, shared by all ranks.
class GossipGraph {
 public:
  // Errors (bad_input): see make_topology; checked for every count in the schedule.
  static Expected<std::shared_ptr<const GossipGraph>> make(const std::string& topology,
                                                           const CountSchedule& peers,
                                                           std::int32_t ranks,
                                                           double rounds_per_epoch);

  // Evenly among the round's destinations (Assran et al. 2019, section 3), but for the rounding,
  // which stays here: column-stochastic.
  // Destinations for which `takes_part` is false get nothing, the others more.
  template <class F>
  Shares even_shares(std::int64_t round, Rank rank, F&& takes_part) const {
    Shares shares;
    for (const Rank peer : out(round, rank))
      if (takes_part(peer)) shares.links.push_back({peer, 0});
    const auto links = static_cast<double>(shares.links.size());
    const double weight = exact_weight(1.0 / (links + 1));
    for (Shares::Link& link : shares.links) link.weight = weight;
    shares.kept = 1.0 - links * weight;
    return shares;
  }
  // Metropolis-Hastings weights over the round's edges, used both ways (Xiao, Boyd 2004): doubly
  // stochastic and symmetric. What would go to a peer that takes no part stays here.
  template <class F>
  Shares symmetric_shares(std::int64_t round, Rank rank, F&& takes_part) const {
    Shares shares = symmetric(round, rank);
    std::vector<Shares::Link> present;
    for (const Shares::Link& link : shares.links) {
      if (takes_part(link.peer))
        present.push_back(link);
      else
        shares.kept += link.weight;
    }
    shares.links = std::move(present);
    return shares;
  }

  const std::vector<Rank>& out(std::int64_t round, Rank rank) const;
  const std::vector<Rank>& in(std::int64_t round, Rank rank) const;
  // Both of them, ascending.
  std::vector<Rank> neighbors(std::int64_t round, Rank rank) const;
  // Two sides, by rank, such that every edge of every round joins one to the other; rank 0 is on
  // the false side. Errors (bad_input): the graph is not bipartite, or in several parts.
  Expected<std::vector<bool>> bipartition() const;
  // Groups of ranks between which no message passes in any round; 1 where all reach each other.
  std::int32_t component_count() const;
  // What shares that are not given back need: whoever sends to a part of the graph also hears from
  // it, over some ranks and rounds. Errors (bad_input) name two ranks.
  Expected<void> check_strongly_connected() const;
  // Rounds after which the graph repeats, for as long as the number of peers does not change.
  std::int64_t period(std::int64_t round) const;

 private:
  const Topology& topology_at(std::int64_t round) const;
  Shares symmetric(std::int64_t round, Rank rank) const;
  // Over all rounds; ascending.
  template <class Lists>
  std::vector<Rank> union_of_rounds(Rank rank, Lists lists) const;
  std::vector<Rank> all_neighbors(Rank rank) const;

  std::string topology_;
  std::int32_t ranks_ = 0;
  CountSchedule peers_;
  double rounds_per_epoch_ = 1;
  std::map<std::int64_t, std::shared_ptr<const Topology>> by_count_;
};

}  // namespace grapevine
