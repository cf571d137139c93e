#include "actors/evaluator.hpp"

namespace grapevine {

EvaluatorActor::behavior_type evaluator(EvaluatorActor::stateful_pointer<EvaluatorState> self,
                                        EvaluatorConfig config) {
  self->state.config = std::move(config);
  return {[self](const EpochModel& model) {
    EvaluatorState& state = self->state;
    ModelAverage& average = state.epochs[model.epoch];
    average.add(model.z, model.buffers);
    if (average.count() < state.config.ranks) return;
    EpochEvaluated done;
    done.epoch = model.epoch;
    auto evaluated = state.config.compute->evaluate(average.z(), average.buffers());
    if (evaluated)
      done.evaluation = *evaluated;
    else
      done.error = evaluated.error().message;
    state.epochs.erase(model.epoch);
    self->send(state.config.supervisor, std::move(done));
  }};
}

}  // namespace grapevine
