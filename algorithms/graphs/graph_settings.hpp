// GraphSettings: the keys of roles that exchange along a topology.
#pragma once
#include <string>

#include "algorithms/graphs/topology.hpp"
#include "algorithms/keys.hpp"
#include "algorithms/schedules.hpp"

namespace grapevine {

struct GraphSettings {
  std::string topology = "exponential";
  CountSchedule peers;  // peers per round
};

inline GraphSettings read_graph(KeyReader& keys) {
  GraphSettings graph;
  graph.topology = keys.text("topology", graph.topology, "a topology's name",
                             "the graph: the ranks with which a rank exchanges in each round");
  if (auto known = check_topology_name(graph.topology); !known) keys.fail(known.error());
  graph.peers = read_counts(keys, "peers", "1", 1, "peers per round, by epoch");
  return graph;
}

}  // namespace grapevine
