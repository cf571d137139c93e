// Topologies: the destinations of each rank, slot by slot, and the weights of these edges. A part;
// independent of roles.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/graphs/shares.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// The communication graph as a periodic sequence of rounds. Share one object between all ranks of a
// process: it looks immutable and every method may be called from any thread at any time.
//
// Every rank has a list of offsets (slots); a round uses `peers` consecutive slots and each
// rotation advances by `peers` (reference: Assran et al. 2019, section 3 and appendix A).
// Self-edges and duplicate destinations within one round are dropped: they would lose or double
// mass. So a round has fewer than `peers` destinations where the graph has no more, and asking
// for more peers than there are slots uses all slots in every round.
//
// Every edge has a weight, the fraction of its mass that the rank gives to the destination:
//   a directed graph     even, 1/(destinations + 1): column-stochastic
//   used both ways       Metropolis-Hastings (Xiao, Boyd 2004): symmetric, doubly stochastic
//   a graph's own        where it has any, for both uses; a round whose weights differ between the
//                        two directions of an edge is Metropolis-Hastings where used both ways
// Shares have these weights rounded once, so that the numerator and the push-sum weight are scaled
// by the same number (see exact_weight).
//
// A round is built when it is first asked for, in O(ranks * peers): the linear graphs have as many
// rounds as ranks, and most runs touch few of them. Its symmetric shares are built when those are
// first asked for.
class Topology {
 public:
  using Lists = std::vector<std::vector<Rank>>;  // [rank]: destinations or sources
  // The edges of one round, [rank].
  struct Edges {
    Edges() = default;
    Edges(Lists destinations) : to(std::move(destinations)) {}
    // REQUIRES: ascending destinations, none of them the rank itself; for each of them a weight,
    // above 0, those of a rank with a sum below 1.
    Edges(Lists destinations, std::vector<std::vector<double>> own)
        : to(std::move(destinations)), weights(std::move(own)) {}

    Lists to;
    std::vector<std::vector<double>> weights;  // empty: the graph has none of its own
  };

  Topology(std::string name, std::int32_t ranks, std::int32_t peers, std::vector<Edges> rounds);
  // `edges(round)`, 0 <= round < period. Must be pure.
  Topology(std::string name, std::int32_t ranks, std::int32_t peers, std::int64_t period,
           std::function<Edges(std::int64_t)> edges);

  const std::string& name() const { return name_; }
  std::int32_t ranks() const { return ranks_; }
  // As asked for; static graphs without slots ignore it (see make_topology).
  std::int32_t peers() const { return peers_; }
  // Rounds until the rotation is back at the first slot; at least 1, also for one rank.
  std::int64_t period() const { return period_; }

  // Destinations of `rank` in `round` (any round >= 0), ascending slot order, without duplicates.
  const std::vector<Rank>& out(std::int64_t round, Rank rank) const;
  // Ranks that send to `rank` in `round`, ascending.
  const std::vector<Rank>& in(std::int64_t round, Rank rank) const;
  // Both of them, ascending: the neighbours of `rank` where every edge is used both ways.
  std::vector<Rank> neighbors(std::int64_t round, Rank rank) const;

  // Whether the round has weights of its own.
  bool has_weights(std::int64_t round) const;
  // What `rank` gives along its edges by the graph's own weights. O(degree). REQUIRES:
  // has_weights(round).
  Shares own_shares(std::int64_t round, Rank rank) const;
  // What `rank` gives to its neighbors, every edge of the round used both ways: the graph's own
  // weights, or Metropolis-Hastings: 1/(1 + max(degree i, degree j)). Ascending peers.
  const Shares& symmetric_shares(std::int64_t round, Rank rank) const;

  // Column-stochastic mixing matrix W of a round, row-major [n*n]: x_i' = sum_j W[i*n+j] x_j. Its
  // weights are not rounded.
  std::vector<double> mixing_matrix(std::int64_t round) const;

  // Every round's W also has rows that sum to 1: every rank keeps the push-sum weight 1.
  bool doubly_stochastic() const;
  // In every round i sends to j exactly where j sends to i.
  bool symmetric() const;
  // |lambda_2| of the product W_T ... W_1 of one period's matrices: the factor by which a period
  // contracts the spread. 0 where a period averages exactly (or n == 1); 1 where the ranks never
  // agree. Below 1e-12 counts as 0. Dense, O(n^3): some seconds for 1000 ranks.
  double contraction() const;

 private:
  struct Round {
    std::once_flag built;
    Edges edges;
    Lists in;
    std::once_flag weighed;
    std::vector<Shares> symmetric;  // [rank]
  };

  Round& round_at(std::int64_t round) const;
  void fill(Round& round, Edges edges) const;
  std::vector<Shares> weigh(std::int64_t round) const;
  // entry(i, j, W[i][j]) for each entry of a round's W that is not 0.
  template <class F>
  void for_each_entry(std::int64_t round, const F& entry) const;
  // W_T ... W_1, row-major [n*n].
  std::vector<double> period_product() const;

  // Constant after construction.
  std::string name_;
  std::int32_t ranks_;
  std::int32_t peers_;
  std::int64_t period_;
  std::function<Edges(std::int64_t)> edges_;
  // [period_]; each filled and weighed once, guarded by its flags.
  std::unique_ptr<Round[]> rounds_;
};

// Names and what `peers` means (n = ranks; offsets are mod n; "swap": i sends to j in a slot
// exactly where j sends to i):
//   exponential             +j(p+1)^i, j = 1..p, all powers below n
//   one-peer-exponential    +2^i, all powers below n, one in each round: exponential with one peer,
//                           whatever `peers` is. Exact after p rounds where n = 2^p, from any round
//                           on; never elsewhere (Ying et al., NeurIPS 2021)
//   bidirectional-exponential  +2^i, -2^i
//   bipartite-exponential   1, then 1+2^i, forward and backward; odd ranks active; swap; where n is
//                           odd, as for n + 1, and the partner of the missing rank rests
//   linear                  +i, -i for odd i < n
//   bipartite-linear        odd i < n, forward and backward; odd ranks active; swap; odd n: "
//   hypercube               rank with one bit flipped; swap; n a power of two
//   ring                    +1, -1; static: the first `peers` of them in every round, so 1 is a
//                           directed ring (contraction cos(pi/n)) and 2 the undirected one
//   round-robin             one peer: every two ranks exchange once in a period of n - 1 rounds (n
//                           where it is odd, when one rank rests in each); swap; `peers` is ignored
//   random-regular[:SEED]   peers >= 2: static and undirected, every rank has `peers` neighbours
//                           (n * peers even); peers = 1, whose graph would be separate pairs: one
//                           edge at a time of a random graph of degree 3 (even n; swap) or 4 (odd
//                           n)
//   base                    base-(p+1) graph: undirected, at most `peers` neighbours in a round;
//                           weights of its own; exact after each period of at most
//                           2 log_(p+1) n + 2 rounds, for any n; one round where n <= p+1 (see
//                           base_graph.hpp)
//   complete, star (hub 0), grid2d, file:PATH   static, undirected: all neighbours in every round,
//                           `peers` is ignored. grid2d does not wrap; its rows are the largest
//                           divisor of n up to sqrt(n), so a prime n is a path
// An edge list holds one edge a line, `i j` (both ways) or `i -> j`, with a third column where the
// graph has weights of its own; `#` starts a comment (see edge_list.hpp).
// star, grid2d and edge lists are not regular: push-sum's weight or Metropolis-Hastings carries
// them.
//
// n == 1 works for every name. Errors (bad_input): unknown name with the nearest guess, ranks < 1,
// peers < 1, a graph too large to list, a damaged edge list (file and line).
Expected<std::shared_ptr<const Topology>> make_topology(const std::string& name, std::int32_t ranks,
                                                        std::int32_t peers);
// Whether make_topology() knows the name, for any numbers. Errors (bad_input): the nearest guess.
Expected<void> check_topology_name(const std::string& name);
// The names that need no further argument (all but file:PATH).
std::vector<std::string> topology_names();

}  // namespace grapevine
