#include "apps/simulate/sim_run.hpp"

#include <utility>

#include "actors/run/simulation/run_virtual.hpp"

namespace grapevine {

SimOutcome run_sim(RunConfig run, std::shared_ptr<RunObserver> observer) {
  const std::shared_ptr<VirtualWorld> world = run.world;
  SimOutcome outcome;
  outcome.result = run_virtual(std::move(run), std::move(observer));
  outcome.virtual_seconds = to_seconds(world->now);
  outcome.trace_hash = mix_seed(world->network->hash(), outcome.result.trace_hash);
  outcome.events = world->events;
  return outcome;
}

}  // namespace grapevine
