#include "algorithms/roles/partial.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/wiring/shared_parts.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMostRanks = std::numeric_limits<Rank>::max();

void read_partial(KeyReader& keys, Plan& plan) {
  auto partial = std::make_shared<PartialSettings>();
  plan.local.pack = read_pack(keys, {Pack::gradient},
                              "exchange = 'partial': a partial all-reduce sums gradients");
  partial->activation = keys.choice<ActivationPolicy>(
      "activation", "majority",
      {{"solo", ActivationPolicy::solo},
       {"majority", ActivationPolicy::majority},
       {"quorum", ActivationPolicy::quorum}},
      "what begins a partial all-reduce: the first rank that is ready, one drawn at random, or a "
      "quorum of ready ranks");
  keys.where("activation", "quorum", [&] {
    partial->quorum = static_cast<std::int32_t>(keys.whole(
        "quorum", 0, 1, "ranks that must be ready; more than half by default", kMostRanks));
  });
  partial->staleness =
      keys.whole("staleness", partial->staleness, 0, "tau: rounds that a gradient may be old");
  plan.compression = read_compression(keys, {true});
  partial->scale_by_active =
      keys.choice<bool>("scale", "ranks", {{"ranks", false}, {"active", true}},
                        "what a partial sum is divided by: all ranks, or those in it");
  keys.only_where("scale", !partial->scale_by_active || !plan.compression.enabled(),
                  "compress = '" + plan.compression.name +
                      "': ranks without a gradient still send what was left over, choose scale = "
                      "'ranks'");
  plan.local.clip = read_clip(keys, true);
  plan.settings = std::move(partial);
}

Expected<void> prepare_partial(SharedParts& parts, std::int32_t ranks) {
  const std::int32_t quorum = data_as<PartialSettings>(parts.plan.settings).quorum;
  if (quorum > ranks)
    return bad_input("wiring.quorum = " + std::to_string(quorum) + " of " + std::to_string(ranks) +
                     " ranks: choose at most as many");
  return check_bytes(parts.plan.compression, ranks, parts.plan.hierarchy > 1);
}

}  // namespace

const RoleType& partial_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "partial";
    role.summary = "ranks sum the gradients that they have, without waiting for the others";
    role.read = &read_partial;
    role.prepare = &prepare_partial;
    role.make = [](RoleContext c) -> std::unique_ptr<Role> {
      return std::make_unique<Partial>(c.parts, c.rank, c.ranks, c.model, std::move(c.optimizer));
    };
    role.counts_own_steps = false;
    role.announces_end = [](const Plan& plan) {
      return data_as<PartialSettings>(plan.settings).staleness > 0;
    };
    return role;
  }();
  return type;
}

Partial::Partial(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
                 ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      settings_(data_as<PartialSettings>(parts_->plan.settings)),
      rank_(rank),
      ranks_(all_ranks(ranks)),
      model_(model),
      local_(parts_->plan.local, parts_->horizon, parts_->lr, ranks, std::move(optimizer)),
      reduction_(make_reduction(reduction_settings(*parts_), rank, ranks, model.x.numel())),
      rounds_(settings_, parts_->plan.seed, parts_->horizon.steps, ranks),
      reduce_(ranks_, rank_, 0, rounds_.trigger(), reduction_) {}

// ---- training ----

void Partial::on_start(Env& env) {
  if (rounds_.all_consumed()) {
    phase_ = Phase::finished;
    return env.finished();
  }
  if (phase_ == Phase::finished) {
    phase_ = Phase::idle;
    rounds_.enter_phase();
    start_round();  // the training was extended: its trigger has changed
  }
  // A node's workers may have begun at an older x: its age is unchanged.
  if (phase_ == Phase::computing) env.compute(produced_, model_.x);
  if (phase_ == Phase::idle) compute(env);
}

// Asks for a gradient where this rank has steps left.
void Partial::compute(Env& env) {
  phase_ = Phase::idle;
  if (produced_ >= parts_->horizon.steps) return;
  phase_ = Phase::computing;
  computing_at_ = rounds_.now();
  env.compute(produced_, model_.x);
}

void Partial::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  pending_.push_back({produced_++, computing_at_});
  at::Tensor g = std::move(gradient.value).thaw();
  local_.clip_own(g);
  if (!pending_sum_.defined()) {
    pending_sum_ = std::move(g);
  } else {
    kernels::fold(pending_sum_, g);
    env.recycle(FrozenTensor::freeze(std::move(g)));
  }
  const bool late = produced_ <= rounds_.regular_rounds_done() && !rounds_.draining();
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

// Whether the gradient being computed would be consumed more than tau rounds after its x.
bool Partial::must_hold_back() const {
  return phase_ == Phase::computing && rounds_.now() - computing_at_ >= settings_.staleness;
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
      settings_.scale_by_active ? active : static_cast<std::int64_t>(ranks_.size());
  if (divisor > 1) result.sum.mul_(1.0 / static_cast<double>(divisor));
  at::Tensor mean = local_.step_along_mean(model_, std::move(result.sum), model_.epoch, pool_);
  env.recycle(FrozenTensor::freeze(std::move(mean)));

  rounds_.consume(result.tally);
  model_.step = rounds_.consumed(rank_);
  model_.epoch = static_cast<double>(rounds_.consumed_by_all()) /
                 static_cast<double>(ranks_.size()) / parts_->horizon.steps_per_epoch;
  commit_own(env, rounds_.now());
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
  env.record({EventKind::contributed, -1, stamp(), model_.step, round - newest, 0});
  contributed_.clear();
}

void Partial::next_round(Env& env) {
  rounds_.advance();
  if (phase_ == Phase::waiting) {
    env.record({EventKind::wait_end, -1, stamp(), produced_ - 1, 0, 0});
    env.record({EventKind::step_done, -1, stamp(), produced_ - 1, 0, 0});
    phase_ = Phase::idle;
  }
  start_round();
  if (rounds_.all_consumed()) {
    phase_ = Phase::finished;
    return env.finished();
  }
  if (phase_ == Phase::idle) compute(env);
  if (rounds_.draining() && !pending_.empty()) post(env);
  take_early(env);
  contribute_if_begun(env);
}

void Partial::start_round() {
  reduce_ = PartialAllReduce(ranks_, rank_, rounds_.now(), rounds_.trigger(), reduction_);
}

// ---- messages ----

void Partial::on_message(Env& env, Envelope envelope) {
  const std::int64_t round = PartialAllReduce::operation_of(envelope.payload);
  if (const auto* activate = std::get_if<Activate>(&envelope.payload)) {
    if (round < rounds_.now()) return;  // that round has begun
    if (round > rounds_.now()) return early_activations_[round].push_back(*activate);
    send(env, reduce_.on_activate(*activate));
  } else {
    GRAPEVINE_CHECK(round >= rounds_.now(), "a part of round ", round, " that is over, from rank ",
                    envelope.from);
    if (round > rounds_.now()) return hold(envelope.from, round, std::move(envelope.payload));
    send(env, reduce_.on_message(envelope.from, std::move(envelope.payload)));
  }
  contribute_if_begun(env);
  if (reduce_.contributed()) apply_if_done(env);
}

// A message of a later round shows that this round has begun. The reduction stores early vectors.
void Partial::hold(Rank from, std::int64_t round, Payload payload) {
  early_activations_[round].push_back({round, true});
  if (!PartialAllReduce::is_part_of_sum(payload))
    return early_.hold(std::move(std::get<Chunk>(payload)));
  const auto out = reduction_->on_message(from, std::move(payload));
  GRAPEVINE_CHECK(out.empty(), "a later round's message was used in round ", rounds_.now());
}

void Partial::take_early(Env& env) {
  const auto early = early_activations_.extract(rounds_.now());
  if (!early.empty())
    for (const Activate& activate : early.mapped()) send(env, reduce_.on_activate(activate));
  for (Chunk& chunk : early_.take(2 * rounds_.now() + 1))
    send(env, reduce_.on_message(rank_, std::move(chunk)));
}

void Partial::on_timer(Env&, TimerId) {}

// The sums cannot be completed without this rank: the supervisor ends the run.
void Partial::on_peer_down(Env&, Rank) {}
void Partial::on_peer_up(Env&, Rank) {}

void Partial::send(Env& env, std::vector<OutgoingMessage> messages) {
  send_all(env, stamp(), std::move(messages));
}

// ---- the model ----

FrozenTensor Partial::debiased() const { return model_.x; }

Stamp Partial::stamp() const {
  return stamp_of(rank_, std::max<Step>(0, produced_ - 1), rounds_.now());
}

// ---- checkpoints ----

StateDict Partial::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put("produced", produced_);
  state.put("computing_at", computing_at_);
  state.put_all("rounds", rounds_.save());
  if (pending_sum_.defined()) state.put("pending.sum", pending_sum_.clone());
  for (const auto& [name, list] :
       {std::pair{"pending", &pending_}, std::pair{"contributed", &contributed_}}) {
    std::vector<std::int64_t> steps, versions;
    for (const Pending& gradient : *list) {
      steps.push_back(gradient.step);
      versions.push_back(gradient.version);
    }
    state.put_list(std::string(name) + ".steps", steps);
    state.put_list(std::string(name) + ".versions", versions);
  }
  std::vector<std::int64_t> activations;
  for (const auto& [round, messages] : early_activations_)
    for (const Activate& message : messages) activations.push_back(2 * round + message.begun);
  state.put_list("early.activations", activations);
  state.put_all("early.chunks", early_.save());
  local_.save_into(state);
  state.put_all("reduce", reduce_.save());
  return state;
}

Expected<void> Partial::load(const StateDict& state) {
  const auto phase = state.integer_in("phase", 0, static_cast<std::int64_t>(Phase::finished)),
             produced = state.integer("produced"), computing_at = state.integer("computing_at");
  for (const auto* field : {&phase, &produced, &computing_at})
    if (!*field) return field->error();
  const auto activations = state.list("early.activations");
  if (!activations) return activations.error();
  phase_ = static_cast<Phase>(*phase);
  produced_ = *produced;
  computing_at_ = *computing_at;
  if (auto loaded = rounds_.load(state.under("rounds")); !loaded) return loaded;
  if (auto loaded = load_pending(state); !loaded) return loaded;
  early_activations_.clear();
  for (const std::int64_t code : *activations)
    early_activations_[code / 2].push_back({code / 2, code % 2 == 1});
  start_round();
  if (auto loaded = reduce_.load(state.under("reduce"), model_.epoch); !loaded) return loaded;
  if (auto loaded = early_.load(state.under("early.chunks")); !loaded) return loaded;
  return local_.load_from(state, model_.x.numel(), false);
}

Expected<void> Partial::load_pending(const StateDict& state) {
  pending_sum_ = at::Tensor();
  if (state.entries().count("pending.sum") > 0) {
    const auto sum = state.flat_tensor("pending.sum", model_.x.numel());
    if (!sum) return sum.error();
    pending_sum_ = sum->clone();
  }
  for (const auto& [name, list] :
       {std::pair{"pending", &pending_}, std::pair{"contributed", &contributed_}}) {
    const auto steps = state.list(std::string(name) + ".steps"),
               versions = state.list(std::string(name) + ".versions");
    for (const auto* field : {&steps, &versions})
      if (!*field) return field->error();
    if (steps->size() != versions->size())
      return bad_input(std::string("entries '") + name +
                       "' of the saved state do not fit each "
                       "other: the checkpoint is damaged, resume from another one");
    list->clear();
    for (std::size_t i = 0; i < steps->size(); ++i) list->push_back({(*steps)[i], (*versions)[i]});
  }
  return {};
}

}  // namespace grapevine
