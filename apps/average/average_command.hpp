// grapevine average: distributed averaging without a model, round by round.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

// average --method M --topology NAME --ranks N --peers P --rounds K --dim D --seed S
// [--set wiring.KEY=VALUE]… [--drop Q] [--plain] [--json]. The roles of the wiring in lockstep,
// with gradients of zero; rank i starts with the value i in every coordinate. With --drop messages
// are lost: push-sum then exchanges running sums; with --plain, and for the other methods, roles
// that never wait (lossy_ranks.hpp) take the place of the wiring's. Errors (bad_input): an unknown
// method, those of effective_wiring(), resolve() and make_parts(), numbers out of range; --plain
// with a method other than push-sum; --set with --drop where no wiring runs.
std::unique_ptr<Command> make_average_command();

}  // namespace grapevine
