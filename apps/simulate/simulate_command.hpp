// grapevine simulate: `train` in virtual time, on a modelled network, with faults.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_simulate_command();

}  // namespace grapevine
