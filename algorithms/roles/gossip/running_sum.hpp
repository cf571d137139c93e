// RunningSum: the sum of all shares that a rank ever gave along one edge. A part of the mixer of
// running sums.
#pragma once
#include "algorithms/archive.hpp"
#include "algorithms/roles/gossip/share_split.hpp"
#include "messages/protocol.hpp"

namespace grapevine {

struct RunningSum {
  FrozenTensor x;  // [d] float64; undefined: no share yet
  double w = 0;

  // The message where it has a running sum, else null. No other share is in float64.
  static const Share* in(const Payload& payload);
  // Whether x can be the sum of shares of a model.
  static bool fits(const FrozenTensor& x, const FrozenTensor& model);
  // In place where no message with the sum is on its way.
  void add(const ShareSplit::Gift& gift);
  void fields(Archive& a, const FrozenTensor& model);
};

}  // namespace grapevine
