#include "algorithms/roles/gossip/gossip.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/debiased_model.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {
namespace {

std::unique_ptr<Mixer> make_mixer(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                  ModelState& model, GradientTracker* tracker, BufferPool& pool) {
  const auto& settings = data_as<GossipSettings>(parts->plan.settings);
  ModelState& mixed = tracker ? tracker->mixed() : model;
  if (parts->plan.compression.enabled())
    return make_replica_mixer(parts, settings.averaging, rank, mixed, pool,
                              {tracker ? 2 : 1, settings.rounds_differ()});
  return (settings.running_sums ? make_sums_mixer : make_share_mixer)(parts, settings.averaging,
                                                                      rank, mixed, pool);
}

}  // namespace

Gossip::Gossip(RoleContext context)
    : TrainingRole(std::move(context)),
      settings_(data_as<GossipSettings>(plan().settings)),
      tracker_(settings_.tracking
                   ? std::make_unique<GradientTracker>(model_.x.numel(), model_.x.device(), pool_)
                   : nullptr),
      mixer_(make_mixer(parts_, rank_, model_, tracker_.get(), pool_)) {
  GRAPEVINE_CHECK(parts_->graph != nullptr, "gossip needs a graph");
  // Overlap: the de-biased model of a gradient, beside the shares of two rounds that peers still
  // read: with one buffer every second step allocated a model, with two every sixteenth. Symmetric
  // weights: besides, the model before the step, and what a slower peer of an older round reads.
  if (settings_.overlap) pool_.add_capacity(2);
  if (settings_.averaging == MixingRule::symmetric) pool_.add_capacity(4);
  if (tracker_) pool_.add_capacity(2);  // vectors of two sizes
}

// ---- training ----

void Gossip::on_start(Env& env) {
  if (round_ < 0 && model_.step == 0) local_.begin(model_);
  if (outstanding_) peers_.await(*mixer_, round_, env.membership());
  if (phase_ == Phase::computing) return compute_at_z(env);
  if (phase_ == Phase::finished) {
    if (at_end()) return leave(env);
    // The run is extended. All ranks continue from the round after the newest one in which any rank
    // took part; they know it from each other's Leave.
    round_ = peers_.return_all(round_);
  }
  phase_ = Phase::ready;
  advance(env);
}

void Gossip::on_gradient(Env& env, Gradient gradient) {
  pool_.give(std::move(z_));
  gradient_ = take(std::move(gradient));
  if (tracker_) tracker_->add(gradient_);
  if (settings_.update == Update::before_exchange) {
    const bool exchanges = !settings_.overlap && local_.exchange_due(model_.step + 1);
    StepRound round;
    if (exchanges && !tracker_)
      round.kept = mixer_->scale_in_step({env, round_ + 1, stamp(), peers_});
    apply(env, std::move(round));
    if (exchanges) push(env);
  }
  advance(env);
}

// Finishes the outstanding round, then takes the next step. A round is due at once, or, where local
// steps hide it, at the next exchange. It is folded then if it is complete, skipped at most tau
// times running where gossip overlaps, and waited for otherwise; with running sums it is folded as
// it is. It is not folded earlier: results do not depend on when its parts arrive (docs/adr/0035).
void Gossip::advance(Env& env) {
  const Step steps = model_.step + (gradient_.defined() ? 1 : 0);
  FrozenTensor share;  // to be folded in the last pass over x
  if (outstanding_ && (!hides_exchanges() || local_.exchange_due(steps))) {
    const bool last = steps >= parts_->horizon.steps;
    const bool skips = !last && settings_.overlap && skips_ < settings_.staleness.at(epoch_now());
    if (peers_.awaited().empty() || (settings_.running_sums && !skips))
      share = fold_but_last(env);
    else if (!skips)
      return wait(env);
    else
      ++skips_;
  }
  FrozenTensor z;
  if (gradient_.defined())
    z = apply(env, round_after(env, std::move(share), steps));
  else if (share.defined())
    z = fold_last(round_after(env, std::move(share), steps));
  if (std::exchange(outer_step_due_, false)) outer_step();
  if (at_end()) return leave(env);
  if (settings_.exchanges_first() && local_.exchange_due(model_.step) && !outstanding_) push(env);
  compute_at_z(env, std::move(z));
}

// Whether local steps are taken while a round is outstanding.
bool Gossip::hides_exchanges() const {
  return exchanges().longest() > 1 && settings_.exchanges_first();
}

// Whether nothing comes between the fold of a round, the step, the share of the next round, and z.
bool Gossip::steps_in_one_pass() const {
  return !tracker_ && plan().local.outer == Outer::none && plan().local.quasi_global == 0;
}

// Folds the outstanding round but for what the next pass over x is to fold.
FrozenTensor Gossip::fold_but_last(Env& env) {
  if (!steps_in_one_pass()) {
    fold(env, round_);
    return FrozenTensor();
  }
  outstanding_ = false;
  return mixer_->fold_but_last(env, round_);
}

// What the last pass over x of `steps` steps does besides: it folds `share`; scales what this rank
// keeps, where it gives a round at once; and de-biases, unless a round is given from x afterwards.
StepRound Gossip::round_after(Env& env, FrozenTensor share, Step steps) {
  StepRound round;
  round.share = std::move(share);
  if (steps >= parts_->horizon.steps || !steps_in_one_pass()) return round;
  const bool gives = settings_.exchanges_first() && local_.exchange_due(steps) && !outstanding_ &&
                     !hides_exchanges();
  if (gives) round.kept = mixer_->scale_in_step({env, round_ + 1, stamp(), peers_});
  round.debiases = (!gives || round.kept != 1) && model_.w * round.kept != 1;
  return round;
}

FrozenTensor Gossip::fold_last(StepRound round) {
  at::Tensor z = round.debiases ? pool_.take(model_.x) : at::Tensor();
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
    kernels::push_sum_fold_into(out, z, x, round.share.read(), round.kept, model_.w * round.kept);
  });
  model_.w *= round.kept;
  return z.defined() ? FrozenTensor::freeze(std::move(z)) : FrozenTensor();
}

// Returns z where the round de-biases.
FrozenTensor Gossip::apply(Env& env, StepRound round) {
  at::Tensor gradient = std::exchange(gradient_, {});
  if (tracker_) gradient = tracker_->estimate();
  local_step(env, std::move(gradient), epoch_now(), round);
  count_step();
  outer_step_due_ = settings_.exchanges_first() && local_.exchange_due(model_.step);
  env.record({EventKind::committed, rank_, stamp(), model_.step - 1, 0, 0});
  env.record({EventKind::step_done, -1, stamp(), model_.step - 1, 0, 0});
  return std::move(round.z);
}

void Gossip::push(Env& env) {
  ++round_;
  outstanding_ = true;
  skips_ = 0;
  if (tracker_) tracker_->join(model_);
  mixer_->push({env, round_, stamp(), peers_}, hides_exchanges());
  if (tracker_) tracker_->split(model_);
  peers_.await(*mixer_, round_, env.membership());
}

void Gossip::fold(Env& env, std::int64_t round) {
  if (tracker_) tracker_->join(model_);
  mixer_->fold(env, round);
  if (tracker_) tracker_->split(model_);
  outstanding_ = false;
  if (!settings_.exchanges_first() && round == round_) outer_step();
}

// What the exchange amounts to enters the quasi-global momentum, or is an outer step's direction.
void Gossip::outer_step() {
  const Step begin =
      model_.step == 0 ? 0 : exchanges().begin_of(exchanges().index_of(model_.step - 1));
  const double epoch = parts_->horizon.epoch_of(model_.step - 1);
  local_.learn_from_mixed(model_, model_.step - begin, epoch, pool_);
  local_.step_to_mixed(model_, epoch, pool_);
}

// `z`: x/w, where a pass over x has computed it already.
void Gossip::compute_at_z(Env& env, FrozenTensor z) {
  if (model_.w == 1.0) return compute(env, model_.x);
  if (!z.defined()) {
    at::Tensor buffer = pool_.take(model_.x);
    kernels::debias(buffer, model_.x.read(), model_.w);
    z = FrozenTensor::freeze(std::move(buffer));
  }
  z_ = z;
  compute(env, std::move(z));
}

void Gossip::leave(Env& env) {
  phase_ = Phase::finished;
  fold(env, Mixer::kAllRounds);
  mixer_->flush({env, round_, stamp(), peers_});
  // Ranks that skipped other rounds may still expect this one to take part. With running sums it
  // gives nothing any more in any round, and so gets nothing.
  if (settings_.rounds_differ() || !parts_->began_together()) {
    const Leave left{settings_.running_sums ? -1 : round_};
    for (Rank peer = 0; peer < env.membership().world_size(); ++peer)
      if (peer != rank_ && env.membership().is_alive(peer)) env.send(peer, stamp(), left);
  }
  finish(env);
}

// ---- messages ----

void Gossip::on_message(Env& env, Envelope envelope) {
  const Rank from = envelope.from;
  if (const auto* left = std::get_if<Leave>(&envelope.payload))
    peers_.leaves(from, left->last_round);
  else
    mixer_->take(std::move(envelope));
  resume_if_complete(env, from);
}

void Gossip::on_peer_down(Env& env, Rank peer) {
  peers_.leaves(peer, -1);
  resume_if_complete(env, peer);
}

// Called when a message arrived or a peer left. A waiting rank continues once its round is
// complete; a finished rank folds what is late, so that no mass is lost.
void Gossip::resume_if_complete(Env& env, Rank peer) {
  peers_.heard_of(*mixer_, round_, peer);
  if (phase_ == Phase::finished) return fold(env, Mixer::kAllRounds);
  if (phase_ != Phase::waiting || !peers_.awaited().empty()) return;
  stop_waiting(env);
  advance(env);
}

// One message of each peer whose part of the round is missing.
std::vector<Awaited> Gossip::awaited() const {
  const PayloadKind kind =
      plan().compression.enabled() ? PayloadKind::packed_chunk : PayloadKind::share;
  std::vector<Awaited> missing;
  for (const Rank peer : peers_.awaited()) missing.push_back({peer, kind, round_});
  return missing;
}

// ---- the model ----

FrozenTensor Gossip::debiased() const { return debiased_model(model_); }

// The age of this rank's messages is that of its last gradient.
Stamp Gossip::stamp() const { return stamp_of(rank_, model_.step - 1, model_.step); }

// ---- a change of members ----

// Rounds, replicas and the tracker's estimate begin anew; what a rank gave to a lost one is lost
// with it.
std::int64_t Gossip::close(Env& env) {
  if (phase_ == Phase::waiting) stop_waiting(env);
  if (tracker_) tracker_->join(model_);
  mixer_->close(env, peers_);
  if (tracker_) tracker_->split(model_);
  if (outstanding_ && !settings_.exchanges_first()) outer_step();
  if (gradient_.defined()) apply(env);
  if (std::exchange(outer_step_due_, false)) outer_step();
  return 0;
}

void Gossip::fields(Archive& a) {
  common_fields(a);
  a.count("round", round_, -1);
  a.flag("outstanding", outstanding_);
  a.require(!outstanding_ || round_ >= 0, "outstanding", "waits for a round before the first");
  a.flag("outer_step_due", outer_step_due_);
  a.whole("skips", skips_, 0, settings_.staleness.most());
  a.vector("gradient", gradient_, model_.x.numel());
  if (tracker_) a.part("tracker", *tracker_);
  mixer_->fields(a);
  peers_.fields(a);
}

}  // namespace grapevine
