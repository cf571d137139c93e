#include "actors/run/models/evaluator.hpp"

#include <algorithm>
#include <utility>

#include "actors/unexpected_messages.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

EpochEvaluated evaluate(Compute& compute, const AveragedModel& model) {
  EpochEvaluated done;
  done.epoch = model.epoch;
  try {
    auto evaluated = compute.evaluate(model.z, model.buffers);
    if (evaluated)
      done.evaluation = *evaluated;
    else
      done.error = evaluated.error().message;
  } catch (...) {
    done.error = exception_line(std::current_exception());
  }
  return done;
}

// The thread of evaluations, so that models are averaged meanwhile.
EvaluationActor::behavior_type evaluation(EvaluationActor::pointer self,
                                          const std::shared_ptr<Compute>& compute,
                                          const SupervisorActor& supervisor) {
  return {[self, compute, supervisor](const AveragedModel& model) {
    // For this evaluation alone: the Compute lives longer than the actor.
    compute->on_evaluation_progress([&] {
      self->send(supervisor, Progress{});
      return true;
    });
    EpochEvaluated done = evaluate(*compute, model);
    compute->on_evaluation_progress({});
    return done;
  }};
}

void take_model(EvaluatorState& state, const EpochModel& model) {
  // A rank that was lost may end an epoch again after its return.
  if (!state.senders[model.epoch].insert(model.rank).second) return;
  state.epochs[model.epoch].add(model.z, model.buffers);
}

// Epochs whose models all members have sent; one of a rank that was lost since counts, too.
void take_complete_epochs(EvaluatorState& state) {
  for (auto it = state.epochs.begin(); it != state.epochs.end();) {
    const std::set<Rank>& senders = state.senders[it->first];
    const bool complete = std::all_of(state.members.begin(), state.members.end(), [&](Rank rank) {
      const auto joined = state.joined.find(rank);
      return senders.count(rank) > 0 ||
             (joined != state.joined.end() && it->first < joined->second);
    });
    if (!complete) {
      ++it;
      continue;
    }
    state.waiting.push_back({it->first, it->second.z(), it->second.buffers()});
    state.senders.erase(it->first);
    it = state.epochs.erase(it);
  }
}

// Beside servers the newest buffers of each rank wait for the next epoch.
void forget_buffers_of_others(EvaluatorState& state) {
  for (auto it = state.buffers.begin(); it != state.buffers.end();) {
    const bool trains =
        std::find(state.members.begin(), state.members.end(), it->first) != state.members.end();
    it = trains ? std::next(it) : state.buffers.erase(it);
  }
}

FrozenTensor mean_buffers(const EvaluatorState& state) {
  std::vector<FrozenTensor> all;
  for (const auto& [rank, buffers] : state.buffers) all.push_back(buffers);
  return all.empty() ? FrozenTensor() : mean_of(all);
}

bool is_server(const EvaluatorState& state, Rank rank) {
  return rank >= state.config.ranks - state.config.servers;
}

// Whether the slices of an epoch are a model: another wiring may have another number of them.
bool are_whole(const std::map<Rank, FrozenTensor>& slices, std::int64_t parameters) {
  std::int64_t elements = 0;
  for (const auto& [rank, slice] : slices) elements += slice.numel();
  return elements == parameters;
}

// Epochs are evaluated that have all slices and, where the model has any, the buffers of a worker.
void take_part(EvaluatorState& state, const EpochModel& part) {
  if (is_server(state, part.rank))
    state.slices[part.epoch][part.rank] = part.z;
  else if (part.buffers.defined())
    state.buffers[part.rank] = part.buffers;
  if (state.buffers.empty() && state.needs_buffers) return;
  for (auto it = state.slices.begin(); it != state.slices.end();) {
    if (!are_whole(it->second, state.world.parameters)) {
      ++it;
      continue;
    }
    std::vector<FrozenTensor> slices;
    for (const auto& [rank, slice] : it->second) slices.push_back(slice);
    state.waiting.push_back({it->first, concatenate(slices), mean_buffers(state)});
    it = state.slices.erase(it);
  }
}

using Evaluator = EvaluatorActor::stateful_pointer<EvaluatorState>;

void leave_out(Evaluator self, Epoch epoch, const std::string& why) {
  EpochEvaluated left_out;
  left_out.epoch = epoch;
  left_out.error = "left out, because " + why;
  self->send(self->state.config.supervisor, std::move(left_out));
}

// Where training is faster than evaluation, memory is bounded and the newest models count.
void leave_out_oldest(Evaluator self) {
  EvaluatorState& state = self->state;
  while (state.waiting.size() > kMostWaiting) {
    leave_out(
        self, state.waiting.front().epoch,
        std::to_string(kMostWaiting) + " newer models wait to be evaluated: use --validate end");
    state.waiting.pop_front();
  }
}

void evaluate_next(Evaluator self) {
  EvaluatorState& state = self->state;
  if (state.busy || state.waiting.empty()) return;
  state.busy = true;
  AveragedModel model = std::move(state.waiting.front());
  state.waiting.pop_front();
  self->request(state.evaluation, caf::infinite, std::move(model))
      .then([self](EpochEvaluated& done) {
        self->state.busy = false;
        self->send(self->state.config.supervisor, std::move(done));
        evaluate_next(self);
      });
}

void evaluate_complete(Evaluator self) {
  take_complete_epochs(self->state);
  evaluate_next(self);
  leave_out_oldest(self);
}

void take(Evaluator self, const EpochModel& model) {
  EvaluatorState& state = self->state;
  if (state.left_out.count(model.epoch) > 0) return;
  if (is_server(state, model.rank) || model.z.numel() == 0)
    take_part(state, model);
  else
    take_model(state, model);
  evaluate_complete(self);
}

// Its process is behind, or short of memory.
void give_up_epoch(Evaluator self, Epoch epoch, const std::string& why) {
  EvaluatorState& state = self->state;
  if (!state.left_out.insert(epoch).second) return;
  state.epochs.erase(epoch);
  state.senders.erase(epoch);
  state.slices.erase(epoch);
  leave_out(self, epoch, why);
}

FrozenTensor part_of(const FrozenTensor& values, std::int64_t begin, std::int64_t count) {
  return count == 0 ? FrozenTensor() : FrozenTensor::copy_of(values.read().narrow(0, begin, count));
}

EpochModel model_of(const ModelOffer& offer, const FrozenTensor& values) {
  EpochModel model{offer.rank, offer.epoch, values, {}};
  if (offer.buffers == 0) return model;
  model.z = part_of(values, 0, offer.parameters);
  model.buffers = part_of(values, offer.parameters, offer.buffers);
  return model;
}

// The model of a lost process is no reason to give up the epoch: once the members have changed it
// is not missing.
void take_fetched(Evaluator self, const ModelOffer& offer, const FetchedModel& fetched) {
  self->send(offer.sender, ReleaseModel{offer.rank, offer.epoch});
  if (fetched.values.defined())
    take(self, model_of(offer, fetched.values));
  else if (!fetched.lost)
    give_up_epoch(self, offer.epoch, fetched.why);
}

void fetch_offered(Evaluator self) {
  EvaluatorState& state = self->state;
  for (; state.fetching < kMostFetches && !state.offered.empty(); ++state.fetching) {
    const ModelOffer offer = std::move(state.offered.front());
    state.offered.pop_front();
    const FetchModel order{offer, 0, offer.parameters + offer.buffers};
    self->request(state.config.fetcher, caf::infinite, order)
        .then([self, offer](const FetchedModel& fetched) {
          take_fetched(self, offer, fetched);
          --self->state.fetching;
          fetch_offered(self);
        });
  }
}

}  // namespace

EvaluatorActor::behavior_type evaluator(EvaluatorActor::stateful_pointer<EvaluatorState> self,
                                        EvaluatorConfig config) {
  EvaluatorState& state = self->state;
  state.config = std::move(config);
  ignore_unexpected_messages(*self);
  const std::shared_ptr<Compute> compute = std::move(state.config.compute);
  state.needs_buffers = compute->initial_buffers().numel() > 0;
  for (Rank rank = 0; rank < state.config.ranks - state.config.servers; ++rank)
    state.members.push_back(rank);
  state.world.ranks = state.config.ranks;
  state.world.spare = state.config.servers;
  state.world.parameters = compute->dimension();
  state.world.buffers = compute->initial_buffers().numel();
  const SupervisorActor& supervisor = state.config.supervisor;
  state.evaluation = state.config.detach
                         ? self->spawn<caf::detached>(evaluation, compute, supervisor)
                         : self->spawn(evaluation, compute, supervisor);
  self->link_to(state.evaluation);  // they end together
  const auto fail = [self](const Error& error) {
    self->send(self->state.config.supervisor, RankFailed{error});
  };
  return {[self, fail](const EpochModel& model) {
            EvaluatorState& state = self->state;
            if (state.gate.admits(check(model, state.world), self->clock().now(), fail))
              take(self, model);
          },
          [self, fail](const ModelOffer& offer) {
            EvaluatorState& state = self->state;
            if (!state.config.fetcher ||
                !state.gate.admits(check(offer, state.world), self->clock().now(), fail))
              return;
            state.offered.push_back(offer);
            fetch_offered(self);
          },
          [self](MembersChanged& changed) {
            self->state.members = std::move(changed.members);
            forget_buffers_of_others(self->state);
            for (const Rank rank : changed.joining) self->state.joined[rank] = changed.first_epoch;
            evaluate_complete(self);
          }};
}

}  // namespace grapevine
