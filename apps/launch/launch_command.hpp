// `grapevine launch`: starts a verb in several processes and hands each its rank.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

// Starts this executable, or the program that GRAPEVINE_LAUNCH_PROGRAM names (for tests).
std::unique_ptr<Command> make_launch_command();

}  // namespace grapevine
