#include "algorithms/roles/partial.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "algorithms/kernels.hpp"
#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
Partial::Partial(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
                 ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      rank_(rank),
      ranks_(all_ranks(ranks)),
      model_(model),
      optimizer_(std::move(optimizer)),
      consumed_(static_cast<std::size_t>(ranks), 0),
      compressed_(parts_->plan.compression.enabled()
                      ? make_reduction(parts_, rank, ranks, model.x.numel())
                      : nullptr),
      reduce_(ranks_, rank_, 0, trigger(), compressed_.get()) {}

// ---- the beats ----

void Partial::on_start(Env& env) {
  if (all_consumed()) {
    phase_ = Phase::finished;
    return env.finished();
  }
  if (phase_ == Phase::finished) {
    phase_ = Phase::idle;
    start_round();  // the training goes on: what may begin it has changed
  }
  // A node's workers may have begun at an older x: its age stays that of before.
  if (phase_ == Phase::computing) env.compute(produced_, model_.x);
  if (phase_ == Phase::idle) compute(env);
}

// Asks for a gradient where this rank has steps left.
void Partial::compute(Env& env) {
  phase_ = Phase::idle;
  if (produced_ >= parts_->horizon.steps) return;
  phase_ = Phase::computing;
  computing_at_ = round_;
  env.compute(produced_, model_.x);
}

void Partial::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient that was not asked for");
  pending_.push_back({produced_++, computing_at_});
  if (!pending_sum_.defined()) {
    pending_sum_ = std::move(gradient.value).thaw();
  } else {
    kernels::fold(pending_sum_, gradient.value.read());
    env.recycle(std::move(gradient.value));
  }
  const bool late = produced_ <= regular_rounds_ && !at_the_end();
  if (late) {
    env.record({EventKind::step_done, -1, stamp(), produced_ - 1, 0, 0});
    compute(env);
  } else {
    phase_ = Phase::waiting;
    env.record({EventKind::wait_begin, -1, stamp(), produced_ - 1, 0, 0});
    post(env);
  }
  contribute_if_begun(env);
}

void Partial::post(Env& env) {
  if (!reduce_.contributed()) send(env, reduce_.post());
}

void Partial::contribute_if_begun(Env& env) {
  if (!reduce_.begun() || reduce_.contributed() || must_hold_back()) return;
  at::Tensor value = std::exchange(pending_sum_, at::Tensor());
  if (!value.defined()) value = at::zeros({model_.x.numel()});
  contributed_ = std::exchange(pending_, {});
  send(env, reduce_.contribute(std::move(value), static_cast<std::int64_t>(contributed_.size()),
                               model_.epoch, env.rng()));
  apply_if_done(env);
}

// The gradient in the making could only be consumed later than tau rounds after its x.
bool Partial::must_hold_back() const {
  return phase_ == Phase::computing && round_ - computing_at_ >= parts_->plan.staleness;
}

void Partial::apply_if_done(Env& env) {
  if (!reduce_.done()) return;
  apply(env, reduce_.take_result());
  next_round(env);
}

// x <- x - gamma u(s / P), the same on every rank.
void Partial::apply(Env& env, PartialAllReduce::Result result) {
  const auto active = std::count_if(result.tally.begin(), result.tally.end(),
                                    [](std::int64_t gradients) { return gradients > 0; });
  const auto divisor =
      parts_->plan.scale_by_active ? active : static_cast<std::int64_t>(ranks_.size());
  if (divisor > 1) result.sum.mul_(1.0 / static_cast<double>(divisor));
  model_.lr = parts_->lr.at(model_.epoch);
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
    optimizer_->step_into(out, x, result.sum, model_.lr, 1);
  });
  env.recycle(FrozenTensor::freeze(std::move(result.sum)));

  std::int64_t total = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) total += consumed_[r] += result.tally[r];
  model_.step = consumed_[static_cast<std::size_t>(rank_)];
  model_.epoch = static_cast<double>(total) / static_cast<double>(ranks_.size()) /
                 parts_->horizon.steps_per_epoch;
  commit_own(env, round_);
}

void Partial::commit_own(Env& env, Version round) {
  for (const Pending& gradient : contributed_) {
    Stamp own = stamp();
    own.step = gradient.step;
    own.version = gradient.version;
    env.record({EventKind::committed, rank_, own, gradient.step, 0, 0});
    env.record(
        {EventKind::applied, -1, own, gradient.step, round - gradient.version, model_.x.nbytes()});
  }
  const Version newest = contributed_.empty() ? round + 1 : contributed_.back().version;
  env.record({EventKind::joined, -1, stamp(), model_.step, round - newest, 0});
  contributed_.clear();
}

void Partial::next_round(Env& env) {
  if (regular_) ++regular_rounds_;
  ++round_;
  const bool over = all_consumed();
  if (phase_ == Phase::waiting) {
    env.record({EventKind::wait_end, -1, stamp(), produced_ - 1, 0, 0});
    env.record({EventKind::step_done, -1, stamp(), produced_ - 1, 0, 0});
    phase_ = Phase::idle;
  }
  start_round();
  if (over) {
    phase_ = Phase::finished;
    return env.finished();
  }
  if (phase_ == Phase::idle) compute(env);
  if (at_the_end() && !pending_.empty()) post(env);
  take_early(env);
  contribute_if_begun(env);
}

// ---- rounds ----

void Partial::start_round() {
  regular_ = !at_the_end();
  reduce_ = PartialAllReduce(ranks_, rank_, round_, trigger(), compressed_.get());
}

Trigger Partial::trigger() const {
  const std::vector<std::int32_t> candidates = unfinished();
  const auto drawn =
      static_cast<std::size_t>(mix_seed(parts_->plan.seed, static_cast<std::uint64_t>(round_)) %
                               std::max<std::size_t>(1, candidates.size()));
  const auto left = static_cast<std::int32_t>(candidates.size());
  switch (parts_->plan.activation) {
    case ActivationPolicy::solo:
      return {Trigger::Kind::anybody, 0, 1};
    case ActivationPolicy::majority:
      return {Trigger::Kind::initiator, candidates.empty() ? 0 : candidates[drawn], 1};
    case ActivationPolicy::quorum:
      return {Trigger::Kind::quorum,
              static_cast<std::int32_t>(round_ % static_cast<std::int64_t>(ranks_.size())),
              std::min(quorum(), left)};
  }
  return {};
}

std::int32_t Partial::quorum() const {
  const std::int32_t more_than_half = static_cast<std::int32_t>(ranks_.size()) / 2 + 1;
  return parts_->plan.quorum > 0 ? parts_->plan.quorum : more_than_half;
}

// All ranks know the same: what each has in the model comes with every sum.
std::vector<std::int32_t> Partial::unfinished() const {
  std::vector<std::int32_t> left;
  for (std::size_t r = 0; r < consumed_.size(); ++r)
    if (consumed_[r] < parts_->horizon.steps) left.push_back(static_cast<std::int32_t>(r));
  return left;
}

bool Partial::all_consumed() const {
  const Step steps = parts_->horizon.steps;
  return std::all_of(consumed_.begin(), consumed_.end(),
                     [=](Step taken) { return taken >= steps; });
}

// ---- messages ----

void Partial::on_message(Env& env, Envelope envelope) {
  if (const auto* activate = std::get_if<Activate>(&envelope.payload)) {
    if (activate->operation < round_) return;  // it has long begun
    if (activate->operation > round_)
      return early_activations_[activate->operation].push_back(*activate);
    send(env, reduce_.on_activate(*activate));
  } else if (auto* packed = std::get_if<PackedChunk>(&envelope.payload)) {
    if (packed->operation == round_) {
      send(env, reduce_.on_packed(envelope.from, std::move(*packed)));
    } else {
      GRAPEVINE_CHECK(compressed_ != nullptr, "a compressed vector from rank ", envelope.from);
      GRAPEVINE_CHECK(packed->operation > round_, "a vector of round ", packed->operation,
                      " that is over, from rank ", envelope.from);
      send(env, compressed_->on_message(envelope.from, std::move(*packed)));  // waits for its round
    }
  } else {
    auto* chunk = std::get_if<Chunk>(&envelope.payload);
    GRAPEVINE_CHECK(chunk != nullptr, "a partial all-reduce got something else than a chunk from ",
                    envelope.from);
    const std::int64_t round = PartialAllReduce::operation_of(*chunk);
    GRAPEVINE_CHECK(round >= round_, "a chunk of round ", round, " that is over, from rank ",
                    envelope.from);
    if (round > round_) return early_.hold(std::move(*chunk));
    send(env, reduce_.on_chunk(std::move(*chunk)));
  }
  contribute_if_begun(env);
  if (reduce_.contributed()) apply_if_done(env);
}

void Partial::take_early(Env& env) {
  const auto early = early_activations_.extract(round_);
  if (!early.empty())
    for (const Activate& activate : early.mapped()) send(env, reduce_.on_activate(activate));
  for (const std::int64_t part : {2 * round_, 2 * round_ + 1})
    for (Chunk& chunk : early_.take(part)) send(env, reduce_.on_chunk(std::move(chunk)));
}

void Partial::on_timer(Env&, TimerId) {}

// The sums cannot be completed without this rank: the supervisor ends the run.
void Partial::on_peer_down(Env&, Rank) {}
void Partial::on_peer_up(Env&, Rank) {}

void Partial::send(Env& env, std::vector<OutgoingMessage> messages) {
  for (OutgoingMessage& message : messages)
    env.send(message.to, stamp(), std::move(message.payload));
}

// ---- the model ----

FrozenTensor Partial::debiased() const { return model_.x; }

Stamp Partial::stamp() const {
  Stamp stamp;
  stamp.origin = rank_;
  stamp.step = std::max<Step>(0, produced_ - 1);
  stamp.version = round_;
  return stamp;
}

// ---- checkpoints ----

namespace {

void put_list(StateDict& state, const std::string& name, const std::vector<std::int64_t>& values) {
  state.put(name, at::tensor(values, at::kLong));
}

Expected<std::vector<std::int64_t>> list_of(const StateDict& state, const std::string& name) {
  const auto tensor = state.tensor(name);
  if (!tensor) return tensor.error();
  if (tensor->scalar_type() != at::kLong || tensor->dim() != 1)
    return bad_input("entry '" + name + "' is not a list of whole numbers");
  const at::Tensor values = tensor->contiguous();
  const auto* data = values.data_ptr<std::int64_t>();
  return std::vector<std::int64_t>(data, data + values.numel());
}

}  // namespace

StateDict Partial::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put("produced", produced_);
  state.put("round", round_);
  state.put("regular_rounds", regular_rounds_);
  state.put("regular", std::int64_t{regular_});
  state.put("computing_at", computing_at_);
  put_list(state, "consumed", consumed_);
  if (pending_sum_.defined()) state.put("pending.sum", pending_sum_.clone());
  for (const auto& [name, list] :
       {std::make_pair("pending", &pending_), std::make_pair("contributed", &contributed_)}) {
    std::vector<std::int64_t> steps, versions;
    for (const Pending& gradient : *list) {
      steps.push_back(gradient.step);
      versions.push_back(gradient.version);
    }
    put_list(state, std::string(name) + ".steps", steps);
    put_list(state, std::string(name) + ".versions", versions);
  }
  std::vector<std::int64_t> activations;
  for (const auto& [round, messages] : early_activations_)
    for (const Activate& message : messages) activations.push_back(2 * round + message.begun);
  put_list(state, "early.activations", activations);
  state.put_all("optimizer", optimizer_->save());
  state.put_all("reduce", reduce_.save());
  if (compressed_) state.put_all("compressed", compressed_->save());
  state.put_all("early.chunks", early_.save());
  return state;
}

Expected<void> Partial::load(const StateDict& state) {
  const auto phase = state.integer("phase"), produced = state.integer("produced"),
             round = state.integer("round"), regular_rounds = state.integer("regular_rounds"),
             regular = state.integer("regular"), computing_at = state.integer("computing_at");
  for (const auto* field : {&phase, &produced, &round, &regular_rounds, &regular, &computing_at})
    if (!*field) return field->error();
  const auto consumed = list_of(state, "consumed"),
             activations = list_of(state, "early.activations");
  for (const auto* field : {&consumed, &activations})
    if (!*field) return field->error();
  if (consumed->size() != ranks_.size())
    return bad_input("entry 'consumed' is of another number of ranks");
  phase_ = static_cast<Phase>(*phase);
  produced_ = *produced;
  round_ = *round;
  regular_rounds_ = *regular_rounds;
  computing_at_ = *computing_at;
  consumed_ = *consumed;
  pending_sum_ = at::Tensor();
  if (const auto sum = state.tensor("pending.sum"); sum.ok()) pending_sum_ = sum->clone();
  for (const auto& [name, list] :
       {std::make_pair("pending", &pending_), std::make_pair("contributed", &contributed_)}) {
    const auto steps = list_of(state, std::string(name) + ".steps"),
               versions = list_of(state, std::string(name) + ".versions");
    if (!steps) return steps.error();
    if (!versions) return versions.error();
    if (steps->size() != versions->size())
      return bad_input(std::string("entries '") + name + "' do not fit each other");
    list->clear();
    for (std::size_t i = 0; i < steps->size(); ++i) list->push_back({(*steps)[i], (*versions)[i]});
  }
  early_activations_.clear();
  for (const std::int64_t code : *activations)
    early_activations_[code / 2].push_back({code / 2, code % 2 == 1});
  start_round();
  regular_ = *regular != 0;
  if (auto loaded = reduce_.load(state.under("reduce")); !loaded) return loaded;
  if (auto loaded = early_.load(state.under("early.chunks")); !loaded) return loaded;
  if (compressed_)
    if (auto loaded = compressed_->load(state.under("compressed"), round_, model_.epoch); !loaded)
      return loaded;
  return optimizer_->load(state.under("optimizer"));
}

}  // namespace grapevine
