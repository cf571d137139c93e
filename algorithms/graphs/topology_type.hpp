// TopologyType: a topology from outside the engine describes itself.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/graphs/topology.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct TopologyType {
  std::string name;   // the value of wiring.topology; no ':'
  std::string peers;  // one line: what the number of peers per round means
  // The graph of `ranks` and `peers`, both at least 1. Must work for one rank. Errors (bad_input):
  // numbers that it does not fit, with the numbers to use instead.
  std::function<Expected<std::shared_ptr<const Topology>>(std::int32_t ranks, std::int32_t peers)>
      make;
};

// Those from outside, in the order in which they were added.
const std::vector<TopologyType>& registered_topologies();
// The one of that name; null where there is none.
const TopologyType* registered_topology(const std::string& name);

// Adds a topology, before the first wiring is read. Not thread-safe. Errors (bad_input): a name
// that is taken or has a colon.
Expected<void> register_topology(TopologyType type);

}  // namespace grapevine
