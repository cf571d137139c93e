// GossipGraph: the edges between ranks over a whole run, and their weights. A part.
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
// holds their sums: x and w are scaled by the same number, and the shares of a rank sum to
// exactly 1. A weight that float32 rounds for x alone would change the mean by the same factor in
// every round.
inline double exact_weight(double weight) {
  constexpr double kUnit = 1.0 / (1 << 24);
  return std::floor(weight / kUnit) * kUnit;
}

// One rank's column of the mixing matrix of a round: the shares of its mass that it keeps and
// gives. All are exact weights, and their sum is exactly 1.
struct Shares {
  struct Link {
    Rank peer = 0;
    double weight = 0;
  };
  double kept = 1;
  std::vector<Link> links;

  // Whether every link's weight equals the kept one.
  bool even() const {
    return std::all_of(links.begin(), links.end(),
                       [this](const Link& link) { return link.weight == kept; });
  }
};

// A topology whose number of peers follows a schedule. Everything is a pure function of the round,
// so that both ends of an edge always agree on it. Immutable, shared by all ranks.
class GossipGraph {
 public:
  // Errors (bad_input): see make_topology; checked for every count in the schedule.
  static Expected<std::shared_ptr<const GossipGraph>> make(const std::string& topology,
                                                           const CountSchedule& peers,
                                                           std::int32_t ranks,
                                                           double rounds_per_epoch);

  // Even weights for the round's destinations (Assran et al. 2019, section 3); this rank keeps the
  // rounding: column-stochastic. Destinations for which `takes_part` is false get nothing, the
  // others more.
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
  // stochastic and symmetric. This rank keeps the weight of a peer that takes no part.
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
  // The side of each rank, such that every edge of every round joins the two sides; rank 0 is on
  // the false side. Errors (bad_input): the graph is not bipartite, or not connected.
  Expected<std::vector<bool>> bipartition() const;
  // Components over all rounds, edges in either direction; 1 where the graph is connected.
  std::int32_t component_count() const;
  // Push-sum needs every component to be strongly connected over all rounds: a rank with a path to
  // another also has a path back. Errors (bad_input) name two ranks.
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
