// `grapevine compare RUN…`: the final figures of runs, and the options in which they differ.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_compare_command();

}  // namespace grapevine
