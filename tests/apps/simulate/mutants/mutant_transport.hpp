// Transports with a planted bug, around that of a simulated run.
#pragma once
#include "apps/simulate/sim_job.hpp"

namespace grapevine {
namespace simulate_mutants {

// A message of a rank that died arrives once more after its next life has sent one.
void replay_earlier_lives(SimJob& made);
// At rank 1 the second message of a pair is delivered before the first, once.
void let_one_overtake(SimJob& made);

}  // namespace simulate_mutants
}  // namespace grapevine
