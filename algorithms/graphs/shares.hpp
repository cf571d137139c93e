// Shares: the fractions of its mass that one rank keeps and gives in a round.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

// A weight rounded down to a multiple of 2^-24. float32 holds all of these up to 1, and double
// holds their sums: x and w are scaled by the same number, and the shares of a rank sum to
// exactly 1. A weight that float32 rounds for x alone would change the mean by the same factor in
// every round.
inline constexpr double kLeastShare = 1.0 / (1 << 24);  // above 0
inline double exact_weight(double weight) { return std::floor(weight / kLeastShare) * kLeastShare; }

// One rank's column of the mixing matrix of a round. All weights are exact weights, and their sum
// with `kept` is exactly 1.
struct Shares {
  struct Link {
    Rank peer = 0;
    double weight = 0;
  };
  double kept = 1;
  std::vector<Link> links;

  // Gives `peer` the exact weight below `weight`; this rank keeps the rounding.
  void give(Rank peer, double weight) {
    links.push_back({peer, exact_weight(weight)});
    kept -= links.back().weight;
  }
  // Without the links of peers for which `takes_part` is false: this rank keeps their weights.
  template <class F>
  Shares among(F&& takes_part) const {
    Shares present;
    for (const Link& link : links)
      if (takes_part(link.peer)) present.give(link.peer, link.weight);
    return present;
  }
  // Whether every link's weight equals the kept one.
  bool even() const {
    return std::all_of(links.begin(), links.end(),
                       [this](const Link& link) { return link.weight == kept; });
  }
};

}  // namespace grapevine
