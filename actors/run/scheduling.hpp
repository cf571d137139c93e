// The threads on which CAF runs the actors that have none of their own: peers, the Supervisor and
// what serves them. Workers compute on threads of their own beside these, so that the scheduler's
// must not use a core while there is nothing to do (docs/adr/0011-one-queue-of-actors.md).
#pragma once
#include <caf/actor_system_config.hpp>

namespace grapevine {

// How many a run has: one for each core, and two at least. Thread-safe.
unsigned scheduler_threads();

// One queue for all threads, which sleep until something is in it. REQUIRES: threads >= 1, and no
// actor system was made of `config` yet.
void configure_scheduler(caf::actor_system_config& config, unsigned threads);

}  // namespace grapevine
