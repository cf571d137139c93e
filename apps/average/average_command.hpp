// grapevine average: distributed averaging without a model, round by round.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

// average --method M --topology NAME --ranks N --peers P --rounds K --dim D --seed S [--drop Q]
// [--plain] [--json]. Rank i starts with the value i in every coordinate. Errors (bad_input): those
// of make_topology, parse_averaging_method and AveragingRun::start; numbers out of range; --plain
// with a method other than push-sum.
std::unique_ptr<Command> make_average_command();

}  // namespace grapevine
