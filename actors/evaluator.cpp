#include "actors/evaluator.hpp"

namespace grapevine {
namespace {

EpochEvaluated evaluate(Compute& compute, Epoch epoch, const FrozenTensor& z,
                        const FrozenTensor& buffers) {
  EpochEvaluated done;
  done.epoch = epoch;
  auto evaluated = compute.evaluate(z, buffers);
  if (evaluated)
    done.evaluation = *evaluated;
  else
    done.error = evaluated.error().message;
  return done;
}

std::vector<EpochEvaluated> take_model(EvaluatorState& state, const EpochModel& model) {
  ModelAverage& average = state.epochs[model.epoch];
  average.add(model.z, model.buffers);
  if (average.count() < state.config.ranks) return {};
  EpochEvaluated done =
      evaluate(*state.config.compute, model.epoch, average.z(), average.buffers());
  state.epochs.erase(model.epoch);
  return {std::move(done)};
}

FrozenTensor mean_buffers(const EvaluatorState& state) {
  std::vector<FrozenTensor> all;
  for (const auto& [rank, buffers] : state.buffers) all.push_back(buffers);
  return all.empty() ? FrozenTensor() : mean_of(all);
}

// Epochs are evaluated that have all slices and, where the model has any, somebody's buffers.
std::vector<EpochEvaluated> take_part(EvaluatorState& state, const EpochModel& part) {
  if (part.rank >= state.config.ranks - state.config.servers)
    state.slices[part.epoch][part.rank] = part.z;
  else if (part.buffers.defined())
    state.buffers[part.rank] = part.buffers;
  if (state.buffers.empty() && state.config.compute->initial_buffers().numel() > 0) return {};
  std::vector<EpochEvaluated> done;
  for (auto it = state.slices.begin(); it != state.slices.end();) {
    if (static_cast<std::int32_t>(it->second.size()) < state.config.servers) {
      ++it;
      continue;
    }
    std::vector<FrozenTensor> slices;
    for (const auto& [rank, slice] : it->second) slices.push_back(slice);
    done.push_back(
        evaluate(*state.config.compute, it->first, concatenate(slices), mean_buffers(state)));
    it = state.slices.erase(it);
  }
  return done;
}

}  // namespace

EvaluatorActor::behavior_type evaluator(EvaluatorActor::stateful_pointer<EvaluatorState> self,
                                        EvaluatorConfig config) {
  self->state.config = std::move(config);
  return {[self](const EpochModel& model) {
    EvaluatorState& state = self->state;
    auto done = state.config.servers > 0 ? take_part(state, model) : take_model(state, model);
    for (EpochEvaluated& one : done) self->send(state.config.supervisor, std::move(one));
  }};
}

}  // namespace grapevine
