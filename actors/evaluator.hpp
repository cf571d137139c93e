// Evaluator: validation beside training.
#pragma once
#include <map>
#include <memory>

#include "actors/model_average.hpp"
#include "actors/protocol.hpp"
#include "gpu/compute.hpp"

namespace grapevine {

struct EvaluatorConfig {
  std::int32_t ranks = 1;            // servers included
  std::int32_t servers = 0;          // the last ranks
  std::shared_ptr<Compute> compute;  // owned by this actor alone once spawned
  SupervisorActor supervisor;
};

struct EvaluatorState {
  const char* name = "evaluator";
  EvaluatorConfig config;
  std::map<Epoch, ModelAverage> epochs;                  // not complete yet
  std::map<Epoch, std::map<Rank, FrozenTensor>> slices;  // from servers, not complete yet
  std::map<Rank, FrozenTensor> buffers;                  // beside servers: each worker's newest
};

// Averages the models that all ranks had at the end of an epoch, as they come in, and evaluates the
// average once the last one is there. One sum per epoch in flight, however many ranks. Where there
// are servers the model is their slices, once all are there, with the mean of the newest buffers
// that workers have sent: a worker may be gone. Spawn it detached.
EvaluatorActor::behavior_type evaluator(EvaluatorActor::stateful_pointer<EvaluatorState> self,
                                        EvaluatorConfig config);

}  // namespace grapevine
