// Evaluator: validation beside training.
#pragma once
#include <map>
#include <memory>

#include "actors/model_average.hpp"
#include "actors/protocol.hpp"
#include "gpu/compute.hpp"

namespace grapevine {

struct EvaluatorConfig {
  std::int32_t ranks = 1;
  std::shared_ptr<Compute> compute;  // owned by this actor alone once spawned
  SupervisorActor supervisor;
};

struct EvaluatorState {
  const char* name = "evaluator";
  EvaluatorConfig config;
  std::map<Epoch, ModelAverage> epochs;  // not complete yet
};

// Averages the models that all ranks had at the end of an epoch, as they come in, and evaluates the
// average once the last one is there. One sum per epoch in flight, however many ranks. Spawn it
// detached.
EvaluatorActor::behavior_type evaluator(EvaluatorActor::stateful_pointer<EvaluatorState> self,
                                        EvaluatorConfig config);

}  // namespace grapevine
