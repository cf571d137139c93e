// A run of this process from its start to its end, whatever ends it.
#pragma once
#include <memory>

#include "actors/run/runtime.hpp"
#include "apps/console/command.hpp"
#include "apps/console/signals.hpp"
#include "apps/train/run_end.hpp"

namespace grapevine {

// Passes signals on. SIGUSR1 asks for a checkpoint, or, where `requeue` is given, sets it and
// stops. `files`: null where another process writes them. A thread that does not return at the end
// is left behind, and the console knows of it.
RunResult run_to_the_end(RunConfig config, const std::shared_ptr<RunEnd>& end,
                         const std::shared_ptr<RunReport>& files, SignalFlags& signals,
                         bool* requeue, Console& console);

}  // namespace grapevine
