// run_virtual(): one training run in virtual time.
#pragma once
#include <memory>
#include <vector>

#include "actors/run/runtime.hpp"

namespace grapevine {

// The actors of a run (see Runtime) in virtual time, on the calling thread, under CAF's testing
// scheduler: equal configs give equal traces. A worker's computation takes what `config.delay` says
// and no real time counts. Returns the result of on_end. Throws nothing; a run that stops making
// progress is an error.
RunResult run_virtual(RunConfig config, std::shared_ptr<RunObserver> observer);

// A request of an operator that the rank leaves (ControlRequest::Kind::drain).
struct Drain {
  Rank rank = 0;
  Duration at{0};  // since the start
};

// The same with these requests. The run continues as it was where it refuses one.
RunResult run_virtual(RunConfig config, std::shared_ptr<RunObserver> observer,
                      const std::vector<Drain>& drains);

}  // namespace grapevine
