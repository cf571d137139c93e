// The mixing matrix of a topology's symmetric shares, an oracle of tests.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "algorithms/graphs/topology.hpp"

namespace grapevine {

// Row-major [n*n]: x_i' = sum_j W[i*n+j] x_j.
inline std::vector<double> symmetric_matrix(const Topology& topology, std::int64_t round) {
  const auto n = static_cast<std::size_t>(topology.ranks());
  std::vector<double> w(n * n, 0.0);
  for (std::size_t j = 0; j < n; ++j) {
    const Shares& shares = topology.symmetric_shares(round, static_cast<Rank>(j));
    w[j * n + j] = shares.kept;
    for (const Shares::Link& link : shares.links)
      w[static_cast<std::size_t>(link.peer) * n + j] = link.weight;
  }
  return w;
}

}  // namespace grapevine
