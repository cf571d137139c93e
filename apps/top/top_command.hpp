// The verb `top`: a running job in the terminal.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_top_command();

}  // namespace grapevine
