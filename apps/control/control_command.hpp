// The verb `control`: asks and changes a running job.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_control_command();

}  // namespace grapevine
