// grapevine advise: the fastest wirings for what a run measured.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_advise_command();

}  // namespace grapevine
