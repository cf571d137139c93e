// grapevine topology: the communication graph, its rounds and how fast it mixes.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

// topology NAME --ranks N --peers P [--json | --dot]. Where the graph has weights of its own,
// --json has them beside the rounds. Errors (bad_input): those of make_topology.
std::unique_ptr<Command> make_topology_command();

}  // namespace grapevine
