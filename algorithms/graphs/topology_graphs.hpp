// Undirected graphs behind the static topologies, as neighbour lists. Internal to make_topology.
#pragma once
#include <cstdint>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

using NeighborLists = std::vector<std::vector<Rank>>;  // [rank], ascending

NeighborLists complete_graph(std::int32_t ranks);
// Rank 0 is the hub.
NeighborLists star_graph(std::int32_t ranks);
// Row-major, no wrap-around; the row count is the largest divisor of `ranks` up to its root.
NeighborLists grid_graph(std::int32_t ranks);

// A simple connected graph in which every rank has `degree` neighbours: a relabelled circulant
// graph shuffled by random switches of edge pairs, whose stationary distribution is uniform. Same
// seed, same graph. REQUIRES: degree < ranks, ranks * degree even, degree >= 2 or ranks <= 2.
NeighborLists random_regular_graph(std::int32_t ranks, std::int32_t degree, std::uint64_t seed);

// The same kind of graph cut into permutations, [slot][rank] -> destination, for use one slot at a
// time: three perfect matchings for an even number of ranks, two cycles in both directions for an
// odd one; fewer where so few ranks have no more edges. All slots together are connected.
std::vector<std::vector<Rank>> random_regular_slots(std::int32_t ranks, std::uint64_t seed);

}  // namespace grapevine
