// Edge lists: a graph from a file. Internal to make_topology.
#pragma once
#include <cstdint>
#include <string>

#include "algorithms/graphs/topology.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// A line is an edge, `i j` (both ways) or `i -> j`, and where the graph has weights of its own the
// weight of the edge, the fraction of its mass that i gives to j (and j to i): `i j 0.25`. Either
// every edge has a weight or none has. `#` starts a comment. Self-edges and repeated edges count
// once at most: a rank keeps what it does not give.
//
// Errors (bad_input) name the file and the line: not an edge, a rank outside 0..ranks-1, a weight
// outside [0.000001, 1), a weight beside edges without; or the file and the ranks: an edge with two
// different weights, a rank that keeps less than 0.000001.
Expected<Topology::Edges> read_edge_list(const std::string& path, std::int32_t ranks);

}  // namespace grapevine
