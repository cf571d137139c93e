#include "algorithms/roles/bilateral.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <set>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/wiring/shared_parts.hpp"

namespace grapevine {
namespace {

// Of one rank: more is damage, and the sum over ranks would overflow.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

bool can_be_steps(std::int64_t count) { return count >= 0 && count <= kMostSteps; }

void read_bilateral(KeyReader& keys, Plan& plan) {
  plan.local.pack = read_pack(keys, {Pack::model}, "exchange = 'bilateral': pairs average models");
  plan.graph = read_graph(keys);
  plan.local.local_steps = read_local_steps(keys);
  plan.local.clip = read_clip(keys, false);
}

Expected<void> prepare_bilateral(SharedParts& parts, std::int32_t ranks) {
  if (auto made = make_graph(parts, ranks); !made) return made;
  auto sides = parts.graph->bipartition();
  if (!sides)
    return bad_input("exchange = 'bilateral' pairs ranks that ask with ranks that answer: " +
                     sides.error().message);
  auto prepared = std::make_shared<BilateralSides>();
  prepared->active = std::move(*sides);
  parts.prepared = std::move(prepared);
  return {};
}

}  // namespace

const RoleType& bilateral_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "bilateral";
    role.summary = "pairs of ranks move their models to the middle beside the workers";
    role.read = &read_bilateral;
    role.prepare = &prepare_bilateral;
    role.make = [](RoleContext c) -> std::unique_ptr<Role> {
      return std::make_unique<Bilateral>(c.parts, c.rank, c.ranks, c.model, std::move(c.optimizer));
    };
    role.plans_each_rank = false;
    role.counts_own_steps = false;
    role.tolerates_lost_peer = true;
    role.exchanges_at_the_end = false;
    return role;
  }();
  return type;
}

Bilateral::Bilateral(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
                     ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      rank_(rank),
      ranks_(ranks),
      is_active_(data_as<BilateralSides>(parts_->prepared).active[static_cast<std::size_t>(rank)]),
      model_(model),
      local_(parts_->plan.local, parts_->horizon, parts_->lr, 1, std::move(optimizer)),
      steps_(at::zeros({ranks}, at::kLong)) {
  GRAPEVINE_CHECK(parts_->graph != nullptr, "bilateral averaging needs a graph");
}

// ---- the worker's side ----

// A gradient that was requested before a checkpoint is requested again. This holds also where the
// total has reached its end since: a node that computes the gradient waits for nothing else.
void Bilateral::on_start(Env& env) {
  if (phase_ == Phase::computing) return env.compute(model_.step, model_.x);
  next_step(env);
}

void Bilateral::next_step(Env& env) {
  if (total() >= goal()) return finish(env);
  phase_ = Phase::computing;
  env.compute(model_.step, model_.x);
}

// x <- x - gamma u(g): of the model as it is now, not as the worker saw it.
void Bilateral::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  at::Tensor g = std::move(gradient.value).thaw();
  g = local_.step(model_, std::move(g), model_.epoch, pool_);
  env.recycle(FrozenTensor::freeze(std::move(g)));
  ++model_.step;
  steps_[rank_] = model_.step;
  update_clock();
  env.record({EventKind::committed, rank_, stamp(), model_.step - 1, 0, 0});
  env.record({EventKind::step_done, -1, stamp(), model_.step - 1, 0, 0});
  const bool exchanges = model_.step % parts_->plan.local.local_steps == 0;
  if (is_active_ && exchanges && asked_ < 0) start_exchange(env);
  next_step(env);
}

// Active ranks may still ask: this rank continues to answer.
void Bilateral::finish(Env& env) {
  phase_ = Phase::finished;
  send_progress_update(env);
  env.finished();
}

// ---- the exchange ----

void Bilateral::start_exchange(Env& env) {
  const std::optional<Rank> partner = next_partner(env);
  if (!partner) return;
  asked_ = *partner;
  env.send(asked_, stamp(), Swap{exchange_++, false, model_.x, FrozenTensor::copy_of(steps_)});
}

// In the order of the graph's rounds.
std::optional<Rank> Bilateral::next_partner(const Env& env) {
  const std::int64_t last = round_ + parts_->graph->period(round_);
  for (;;) {
    while (!partners_.empty()) {
      const Rank partner = partners_.front();
      partners_.pop_front();
      if (env.membership().is_alive(partner)) return partner;
    }
    if (round_ == last) return std::nullopt;
    const std::vector<Rank> near = parts_->graph->neighbors(round_++, rank_);
    partners_.assign(near.begin(), near.end());
  }
}

void Bilateral::on_message(Env& env, Envelope envelope) {
  if (auto* swap = std::get_if<Swap>(&envelope.payload)) {
    GRAPEVINE_CHECK(swap->x.numel() == model_.x.numel(), "rank ", envelope.from,
                    " sent a model of another size");
    learn(swap->steps);
    if (swap->reply)
      take_answer(env, envelope.from, envelope.stamp, *swap);
    else
      answer(env, envelope.from, envelope.stamp, *swap);
  } else if (const auto* update = std::get_if<ProgressUpdate>(&envelope.payload)) {
    learn(update->steps);
  } else {
    GRAPEVINE_CHECK(false, "rank ", envelope.from,
                    " sent bilateral averaging neither a swap nor a progress update");
  }
}

// h = (s - x)/2;  x <- x + h. From here on the pair's sum is complete only with h in the answer.
void Bilateral::answer(Env& env, Rank active, const Stamp& stamp, const Swap& request) {
  record_average(env, active, stamp);
  at::Tensor half = at::empty_like(model_.x.read());
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
    kernels::meet_into(out, half, x, request.x.read());
  });
  env.send(active, this->stamp(),
           Swap{request.exchange, true, FrozenTensor::freeze(std::move(half)),
                FrozenTensor::copy_of(steps_)});
}

// x <- x - h. The worker may have changed x since the request.
void Bilateral::take_answer(Env& env, Rank passive, const Stamp& stamp, const Swap& reply) {
  record_average(env, passive, stamp);
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
    kernels::subtract_into(out, x, reply.x.read());
  });
  if (passive == asked_ && reply.exchange == exchange_ - 1) asked_ = -1;
}

void Bilateral::record_average(Env& env, Rank partner, const Stamp& stamp) const {
  const std::int64_t age = model_.step - 1 - stamp.step;
  env.record({EventKind::applied, partner, stamp, model_.step, std::max<std::int64_t>(0, age),
              model_.x.nbytes()});
}

// To all neighbours of the next rounds; each sends its own update when it finishes.
void Bilateral::send_progress_update(Env& env) const {
  std::set<Rank> near;
  const std::int64_t period = parts_->graph->period(round_);
  for (std::int64_t round = round_; round < round_ + period; ++round)
    for (const Rank peer : parts_->graph->neighbors(round, rank_)) near.insert(peer);
  const FrozenTensor steps = FrozenTensor::copy_of(steps_);
  for (const Rank peer : near)
    if (env.membership().is_alive(peer)) env.send(peer, stamp(), ProgressUpdate{steps});
}

void Bilateral::on_timer(Env&, TimerId) {}

// The half of the exchange that the dead peer took is lost; the next exchange has another partner.
void Bilateral::on_peer_down(Env&, Rank peer) {
  if (peer == asked_) asked_ = -1;
}
void Bilateral::on_peer_up(Env&, Rank) {}

// ---- the clock ----

void Bilateral::learn(const FrozenTensor& steps) {
  GRAPEVINE_CHECK(steps.defined() && steps.dtype() == at::kLong && steps.read().dim() == 1 &&
                      steps.numel() == ranks_,
                  "a peer sent counts of gradients that are not one for each of ", ranks_,
                  " ranks");
  const auto* counts = steps.read().data_ptr<std::int64_t>();
  GRAPEVINE_CHECK(std::all_of(counts, counts + ranks_, can_be_steps),
                  "a peer sent a count of gradients outside 0..", kMostSteps);
  at::maximum_out(steps_, steps_, steps.read());
  update_clock();
}

void Bilateral::update_clock() {
  model_.epoch = parts_->horizon.epoch_of(total()) / static_cast<double>(ranks_);
}

std::int64_t Bilateral::total() const { return steps_.sum().item<std::int64_t>(); }

std::int64_t Bilateral::goal() const { return parts_->horizon.steps * ranks_; }

Stamp Bilateral::stamp() const { return stamp_of(rank_, model_.step - 1, model_.step); }

// ---- checkpoints ----

StateDict Bilateral::save() const {
  StateDict state;
  state.put("steps", steps_.clone());
  state.put("exchange", exchange_);
  state.put("asked", static_cast<std::int64_t>(asked_));
  state.put("round", round_);
  state.put("phase", static_cast<std::int64_t>(phase_));
  const std::vector<std::int64_t> partners(partners_.begin(), partners_.end());
  state.put_list("partners", partners);
  local_.save_into(state);
  return state;
}

Expected<void> Bilateral::load(const StateDict& state) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto exchange = state.integer_in("exchange", 0, kMost),
             asked = state.integer_in("asked", -1, ranks_ - 1),
             round = state.integer_in("round", 0, kMost);
  // Older states have no phase.
  const Expected<std::int64_t> phase =
      state.entries().count("phase") == 0
          ? static_cast<std::int64_t>(Phase::idle)
          : state.integer_in("phase", 0, static_cast<std::int64_t>(Phase::finished));
  for (const auto* field : {&exchange, &asked, &round, &phase})
    if (!*field) return field->error();
  const auto steps = state.list("steps"), partners = state.list("partners");
  for (const auto* field : {&steps, &partners})
    if (!*field) return field->error();
  if (static_cast<std::int32_t>(steps->size()) != ranks_)
    return bad_input("entry 'steps' of the saved state is of another number of ranks");
  for (const std::int64_t count : *steps)
    if (!can_be_steps(count))
      return bad_input("entry 'steps' of the saved state has a count of " + std::to_string(count));
  for (const std::int64_t partner : *partners)
    if (partner < 0 || partner >= ranks_ || partner == rank_)
      return bad_input("entry 'partners' of the saved state names no other rank");
  steps_ = at::tensor(*steps, at::kLong);
  exchange_ = *exchange;
  asked_ = static_cast<Rank>(*asked);
  round_ = *round;
  phase_ = static_cast<Phase>(*phase);
  partners_.clear();
  for (const std::int64_t partner : *partners) partners_.push_back(static_cast<Rank>(partner));
  update_clock();
  return local_.load_from(state, model_.x.numel(), false);
}

}  // namespace grapevine
