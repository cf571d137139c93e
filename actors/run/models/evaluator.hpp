// Evaluator: validation beside training.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "actors/protocol/run.hpp"
#include "actors/run/models/model_average.hpp"
#include "actors/run/validate.hpp"
#include "gpu/compute.hpp"

namespace grapevine {

struct EvaluatorConfig {
  std::int32_t ranks = 1;            // servers included, those of wirings to come, too
  std::int32_t servers = 0;          // of them, the last ranks
  std::shared_ptr<Compute> compute;  // goes to the evaluation
  SupervisorActor supervisor;
  ModelFetcherActor fetcher;  // null: a single process
  bool detach = true;         // evaluate in a thread of its own
};

// An average that waits for its evaluation.
struct AveragedModel {
  Epoch epoch = 0;
  FrozenTensor z;
  FrozenTensor buffers;
};

using EvaluationActor = caf::typed_actor<caf::replies_to<AveragedModel>::with<EpochEvaluated>>;

// At most so many evaluations wait; beyond that the oldest are left out.
inline constexpr std::size_t kMostWaiting = 8;

// At most so many models of other processes are here before they are added to a sum.
inline constexpr std::size_t kMostFetches = 2;

struct EvaluatorState {
  const char* name = "evaluator";
  EvaluatorConfig config;
  std::map<Epoch, ModelAverage> epochs;                  // not complete yet
  std::map<Epoch, std::set<Rank>> senders;               // of their models
  std::set<Epoch> left_out;                              // because a model is missing
  std::deque<ModelOffer> offered;                        // that are not fetched yet
  std::size_t fetching = 0;                              // models, kMostFetches of them
  std::vector<Rank> members;                             // that train
  std::map<Rank, Epoch> joined;                          // the first epoch of those that joined
  std::map<Epoch, std::map<Rank, FrozenTensor>> slices;  // from servers, not complete yet
  std::map<Rank, FrozenTensor> buffers;                  // beside servers: each worker's newest
  std::deque<AveragedModel> waiting;                     // complete, kMostWaiting of them
  EvaluationActor evaluation;
  bool busy = false;           // with one of them
  bool needs_buffers = false;  // the model has some
  World world;                 // that models must fit
  Gate gate;
};

// Averages the models that all ranks had at the end of an epoch, as they arrive, and has the
// average evaluated once all have arrived, one at a time. Memory: a sum for each epoch that
// some ranks have not ended, kMostFetches models that are being fetched, and a model for each by
// which evaluation is behind, kMostWaiting at most: where training is faster than evaluation the
// oldest one is left out, which its EpochEvaluated reports. A model of another process is fetched
// as soon as it is offered; an epoch of which one cannot be had any more is left out, too. Where
// there are servers at its end the model is their slices, once all have arrived, with the mean of
// the newest buffers that workers have sent: a worker may be lost.
EvaluatorActor::behavior_type evaluator(EvaluatorActor::stateful_pointer<EvaluatorState> self,
                                        EvaluatorConfig config);

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AveragedModel)
