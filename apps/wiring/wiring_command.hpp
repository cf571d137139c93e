// grapevine wiring: the presets, a wiring with all its keys, a check of a file.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

// wiring list | keys | show NAME|FILE | check FILE. Errors (bad_input): those of resolve and
// make_parts.
std::unique_ptr<Command> make_wiring_command();

}  // namespace grapevine
