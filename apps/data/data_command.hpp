// `grapevine data check SPEC`: reads a data set once.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_data_command();

}  // namespace grapevine
