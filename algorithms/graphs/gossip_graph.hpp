// GossipGraph: the edges between ranks over a whole run, and their weights. A part.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/graphs/shares.hpp"
#include "algorithms/graphs/topology.hpp"
#include "algorithms/schedules.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// A topology whose number of peers follows a schedule. Everything is a pure function of the round,
// so that both ends of an edge always agree on it. Immutable, shared by all ranks.
class GossipGraph {
 public:
  // Errors (bad_input): see make_topology; checked for every count in the schedule.
  static Expected<std::shared_ptr<const GossipGraph>> make(const std::string& topology,
                                                           const CountSchedule& peers,
                                                           std::int32_t ranks,
                                                           double rounds_per_epoch,
                                                           double first_epoch = 0);

  // For push-sum: column-stochastic. The graph's own weights, where it has any; this rank keeps the
  // weight of a destination for which `takes_part` is false. Otherwise even weights (Assran et al.
  // 2019, section 3): destinations that take no part get nothing, the others more.
  template <class F>
  Shares even_shares(std::int64_t round, Rank rank, F&& takes_part) const {
    const Topology& topology = topology_at(round);
    if (topology.has_weights(round)) return topology.own_shares(round, rank).among(takes_part);
    std::vector<Rank> present;
    for (const Rank peer : topology.out(round, rank))
      if (takes_part(peer)) present.push_back(peer);
    Shares shares;
    for (const Rank peer : present)
      shares.give(peer, 1.0 / (static_cast<double>(present.size()) + 1));
    return shares;
  }
  // For symmetric averaging: doubly stochastic and symmetric, every edge of the round used both
  // ways (see Topology::symmetric_shares). This rank keeps the weight of a peer that takes no part.
  template <class F>
  Shares symmetric_shares(std::int64_t round, Rank rank, F&& takes_part) const {
    return topology_at(round).symmetric_shares(round, rank).among(takes_part);
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
  // Over all rounds; ascending.
  template <class Lists>
  std::vector<Rank> union_of_rounds(Rank rank, Lists lists) const;
  std::vector<Rank> all_neighbors(Rank rank) const;

  std::string topology_;
  std::int32_t ranks_ = 0;
  CountSchedule peers_;
  double rounds_per_epoch_ = 1, first_epoch_ = 0;
  std::map<std::int64_t, std::shared_ptr<const Topology>> by_count_;
};

}  // namespace grapevine
