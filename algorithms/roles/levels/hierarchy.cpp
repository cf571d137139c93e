#include "algorithms/roles/levels/hierarchy.hpp"

#include "algorithms/roles/make_role.hpp"
#include "algorithms/roles/messages_of.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace grapevine {
// Rank i * R exchanges for node i; parameter servers follow the nodes. compute() and finished()
// concern the whole node.
class Hierarchy::HeadEnv final : public NestedEnv {
 public:
  HeadEnv(Hierarchy& node, Env& env) : NestedEnv(env, node.heads_, node.node_), node_(node) {}

  void compute(Step step, FrozenTensor z) override {
    if (node_.phase_ == Phase::reducing) return;  // resumed from a checkpoint: it is on its way
    node_.begin(step);
    if (step > node_.published_) node_.publish(env_, step, z, false);
    env_.compute(step, std::move(z));
  }
  void after(Duration delay, TimerId id) override { env_.after(delay, id); }
  void finished() override {
    node_.phase_ = Phase::finished;
    node_.publish(env_, node_.model_.step, node_.role_->debiased(), true);
    env_.finished();
  }

 private:
  Hierarchy& node_;
};

Hierarchy::Hierarchy(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
                     ModelState& model)
    : parts_(std::move(parts)),
      rank_(rank),
      workers_(ranks - parts_->plan.servers),
      node_(rank / parts_->plan.hierarchy),
      members_(group_of(rank, parts_->plan.hierarchy)),
      heads_(heads_and_servers(workers_, parts_->plan)),
      model_(model),
      mean_(members_, rank_) {
  if (rank_ == members_.front())
    role_ = make_flat_role(parts_, node_, static_cast<std::int32_t>(heads_.size()), model_);
}

Hierarchy::~Hierarchy() = default;

void Hierarchy::on_start(Env& env) {
  if (is_head()) {
    HeadEnv head(*this, env);
    return role_->on_start(head);
  }
  if (phase_ == Phase::computing) env.compute(step_, model_.x);
  if (phase_ == Phase::finished && model_.step < parts_->horizon.steps) phase_ = Phase::waiting;
  if (phase_ == Phase::waiting) wait_for_head(env);
  if (phase_ == Phase::finished) env.finished();
}

// The node waits while the head exchanges, from its gradient to the next parameters.
void Hierarchy::wait_for_head(Env& env) {
  env.record({EventKind::wait_begin, members_.front(), stamp(), model_.step, 0, 0});
}

// Sends the head's parameters to all ranks of its node.
void Hierarchy::publish(Env& env, Step step, const FrozenTensor& z, bool last) {
  if (!last) published_ = step;
  for (const Rank member : members_)
    if (member != rank_) env.send(member, stamp(), Parameters{step, last, model_.epoch, z});
}

void Hierarchy::follow(Env& env, Parameters parameters) {
  if (phase_ == Phase::reducing) {
    next_ = std::move(parameters);
    return;
  }
  model_.x = std::move(parameters.x);
  model_.epoch = std::max(model_.epoch, parameters.epoch);
  if (parameters.last) {
    // Late messages of other nodes may change the head's model again.
    if (std::exchange(phase_, Phase::finished) != Phase::finished) env.finished();
    return;
  }
  begin(parameters.step);
  env.compute(step_, model_.x);
}

void Hierarchy::begin(Step step) {
  step_ = step;
  phase_ = Phase::computing;
}

void Hierarchy::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  phase_ = Phase::reducing;
  at::Tensor value = std::move(gradient.value).thaw();
  gradient_ = std::move(gradient);
  gradient_.value = FrozenTensor();
  send_all(env, stamp(), mean_.start(step_, std::move(value)));
  if (!mean_.done()) env.record({EventKind::wait_begin, -1, stamp(), step_, 0, 0});
  use_if_reduced(env);
}

void Hierarchy::on_message(Env& env, Envelope envelope) {
  if (!number_in(members_, envelope.from)) {
    GRAPEVINE_CHECK(is_head() && number_in(heads_, envelope.from), "rank ", envelope.from,
                    " of another node sent a message to rank ", rank_);
    const bool had_ended = phase_ == Phase::finished;
    HeadEnv head(*this, env);
    role_->on_message(head, head.of_world(std::move(envelope)));
    // Messages after the end still change the model, in the whole node.
    if (had_ended && phase_ == Phase::finished) publish(env, model_.step, role_->debiased(), true);
    return;
  }
  if (auto* chunk = std::get_if<Chunk>(&envelope.payload))
    return on_ring_chunk(env, std::move(*chunk));
  auto* parameters = std::get_if<Parameters>(&envelope.payload);
  GRAPEVINE_CHECK(parameters != nullptr && envelope.from == members_.front() && !is_head() &&
                      parameters->x.numel() == model_.x.numel() && std::isfinite(parameters->epoch),
                  "rank ", envelope.from,
                  " sent its node neither a chunk nor the head's parameters");
  if (phase_ == Phase::waiting)
    env.record({EventKind::wait_end, members_.front(), stamp(), model_.step, 0, 0});
  follow(env, std::move(*parameters));
}

void Hierarchy::on_ring_chunk(Env& env, Chunk chunk) {
  send_all(env, stamp(), mean_.on_chunk(std::move(chunk)));
  if (mean_.done()) env.record({EventKind::wait_end, -1, stamp(), step_, 0, 0});
  use_if_reduced(env);
}

// g = 1/R sum_i g_i: to the role where this is the head; elsewhere the step is done.
void Hierarchy::use_if_reduced(Env& env) {
  if (!mean_.done()) return;
  FrozenTensor value = FrozenTensor::freeze(mean_.take());
  if (is_head()) {
    phase_ = Phase::waiting;
    gradient_.value = std::move(value);
    HeadEnv head(*this, env);
    return role_->on_gradient(head, std::move(gradient_));
  }
  env.recycle(std::move(value));
  step_done(env);
}

void Hierarchy::step_done(Env& env) {
  phase_ = Phase::waiting;
  model_.step = step_ + 1;
  model_.lr = parts_->lr.at(model_.epoch);
  if (parts_->plan.role->counts_own_steps) model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::committed, rank_, stamp(), step_, 0, 0});
  env.record({EventKind::step_done, -1, stamp(), step_, 0, 0});
  if (next_) follow(env, *std::exchange(next_, std::nullopt));
  if (phase_ == Phase::waiting) wait_for_head(env);
}

void Hierarchy::on_timer(Env& env, TimerId id) {
  if (!is_head()) return;
  HeadEnv head(*this, env);
  role_->on_timer(head, id);
}

// A node without one of its members cannot sum: the supervisor ends the run.
void Hierarchy::on_peer_down(Env& env, Rank peer) {
  const auto node = number_in(heads_, peer);
  if (!is_head() || !node || peer == rank_) return;
  HeadEnv head(*this, env);
  role_->on_peer_down(head, *node);
}

void Hierarchy::on_peer_up(Env& env, Rank peer) {
  const auto node = number_in(heads_, peer);
  if (!is_head() || !node || peer == rank_) return;
  HeadEnv head(*this, env);
  role_->on_peer_up(head, *node);
}

FrozenTensor Hierarchy::debiased() const { return is_head() ? role_->debiased() : model_.x; }

// ---- checkpoints ----

void Hierarchy::fields(Archive& a) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  a.one_of("phase", phase_, Phase::finished);
  a.whole("step", step_, 0, kMost);
  a.whole("published", published_, -1, kMost);
  mean_.fields(a, step_, model_.x.numel());
  a.require(mean_.running() == (phase_ == Phase::reducing), "phase", "does not fit the ring");
  if (a.present("next", next_))
    a.nested("next",
             [this](Archive& inner) { parameters_fields(inner, *next_, model_.x.numel()); });
  if (is_head()) a.part("head", *role_);
}

}  // namespace grapevine
