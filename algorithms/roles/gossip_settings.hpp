// The settings of gossip, of models and of compressed differences.
#pragma once
#include <cstdint>

#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// How the ranks of a round weigh what they mix.
enum class MixingRule {
  push_sum,   // evenly among the peers of a directed graph, with a weight that travels along
  symmetric,  // Metropolis-Hastings weights, every edge used both ways: doubly stochastic
  biased      // as push_sum, but the weight is ignored
};
// When the optimizer steps.
enum class Update { before_exchange, after_exchange };

struct GossipSettings final : RoleData {
  MixingRule averaging = MixingRule::push_sum;
  Update update = Update::before_exchange;
  bool overlap = false;        // exchange while the worker computes
  std::int64_t staleness = 0;  // tau: exchanges running that may be skipped, with overlap
};

}  // namespace grapevine
