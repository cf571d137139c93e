// The verbs of the grapevine program.
#pragma once
#include <vector>

#include "apps/console/command.hpp"

namespace grapevine {

// In the order in which the help lists them.
const std::vector<CommandEntry>& verbs();

}  // namespace grapevine
