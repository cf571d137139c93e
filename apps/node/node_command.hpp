// `grapevine node`: an actor node that waits for jobs.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_node_command();

}  // namespace grapevine
