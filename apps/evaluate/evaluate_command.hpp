// `grapevine evaluate MODEL|RUN`: the figures of a trained model on data.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_evaluate_command();

}  // namespace grapevine
