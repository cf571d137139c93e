// Base-(k+1) graphs: sequences of rounds that average exactly, for any number of ranks. Internal to
// make_topology.
//
// Paper: Takezawa, Sato, Bao, Niwa, Yamada: "Beyond Exponential Graph: Communication-Efficient
//   Topologies for Decentralized Learning via Finite-time Convergence", NeurIPS 2023, sections 4.1
//   (hyper-hyper-cube), 4.2 (simple base-(k+1) graph) and 4.3 (base-(k+1) graph).
// Symbols: n ranks, k peers, b = k + 1.
//
//   cube(n), where every prime factor of n is at most b: n = f_1 f_2 …, each f at most b. Round q
//     joins the ranks whose numbers differ in their q-th digit alone, in this mixed base, with
//     equal weights: log_b n rounds or a few more.
//   simple(n): n = sum of a_l b^(p_l), p descending, 0 < a_l < b. Block V_l has a_l b^(p_l)
//     consecutive ranks, in a_l pieces.
//       1. Every block averages by its own cube.
//       2. In round m, each rank of a block after V_m exchanges with one rank of each piece of V_m,
//          with weight |V_m| / (a_m sum of |V_l|, l >= m): from then on the mean of each piece is
//          that of all. The other ranks of V_m average in groups of at most b.
//       3. The pieces average by their cubes.
//   base(n): n = A B, where A has the prime factors up to b. simple(B) within each of A groups of
//     consecutive ranks, then cube(A) across the groups. Or simple(n), where that is shorter.
//
// Rounds: at most 2 log_b n + 2. Degree: at most k in each round. Every round is symmetric and
// doubly stochastic. One rank: one round without edges.
#pragma once
#include <cstdint>
#include <vector>

#include "algorithms/graphs/topology.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Used both ways, with the same weight.
struct WeightedEdge {
  Rank a = 0;
  Rank b = 0;
  double weight = 0;  // in (0, 1)
};

// The rounds of the base-(peers + 1) graph: O(ranks * peers) edges each. REQUIRES: ranks, peers >=
// 1.
std::vector<std::vector<WeightedEdge>> base_graph(std::int32_t ranks, std::int32_t peers);

// Both directions of `edges`, by rank.
Topology::Edges both_directions(std::int32_t ranks, const std::vector<WeightedEdge>& edges);

}  // namespace grapevine
