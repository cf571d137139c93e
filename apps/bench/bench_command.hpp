// The verb `bench`: micro-benchmarks of the components of a run.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

std::unique_ptr<Command> make_bench_command();

}  // namespace grapevine
