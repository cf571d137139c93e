// grapevine train: the main job.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_train_command();

}  // namespace grapevine
