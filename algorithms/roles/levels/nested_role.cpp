#include "algorithms/roles/levels/nested_role.hpp"

#include <utility>

#include "algorithms/roles/make_role.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

std::vector<Rank> with_servers(std::vector<Rank> heads, std::int32_t workers, const Plan& plan) {
  for (Rank server = workers; server < workers + plan.servers; ++server) heads.push_back(server);
  return heads;
}

}  // namespace

class NestedRole::NestedEnv final : public Env {
 public:
  NestedEnv(const NestedRole& nested, Env& env) : nested_(nested), env_(env) {}

  Rank rank() const override { return nested_.own_; }
  const Membership& membership() const override {
    if (members_) return *members_;
    members_.emplace();
    for (const Rank rank : nested_.world_)
      members_->alive.push_back(env_.membership().is_alive(rank));
    return *members_;
  }
  Timestamp now() const override { return env_.now(); }
  Rng& rng() override { return env_.rng(); }
  void send(Rank to, Stamp stamp, Payload payload) override {
    stamp.origin = rank_of(stamp.origin);
    env_.send(rank_of(to), stamp, std::move(payload));
  }
  void compute(Step step, FrozenTensor z) override {
    nested_.around_.compute(env_, step, std::move(z));
  }
  void compute_in_parts(Step step, FrozenTensor z, const PartBegins& parts) override {
    nested_.around_.compute_in_parts(env_, step, std::move(z), parts);
  }
  void recycle(FrozenTensor buffer) override { env_.recycle(std::move(buffer)); }
  void after(Duration delay, TimerId id) override {
    env_.after(delay, nested_.around_.timer_of_run(id));
  }
  void record(const Event& event) override {
    Event of_run = event;
    if (event.peer >= 0) of_run.peer = rank_of(event.peer);
    of_run.stamp.origin = rank_of(event.stamp.origin);
    for (Rank& member : of_run.members) member = rank_of(member);
    nested_.around_.record(env_, of_run);
  }
  void finished() override { nested_.around_.finished(env_); }

 private:
  Rank rank_of(Rank number) const { return nested_.world_[static_cast<std::size_t>(number)]; }

  const NestedRole& nested_;
  Env& env_;
  mutable std::optional<Membership> members_;  // made when it is asked for
};

NestedRole::NestedRole(Around& around, std::vector<Rank> heads, std::int32_t workers, Rank rank,
                       const std::shared_ptr<const SharedParts>& parts, ModelState& model)
    : around_(around),
      world_(with_servers(std::move(heads), workers, parts->plan)),
      own_(number_of(rank).value()),
      role_(make_flat_role(parts, own_, static_cast<std::int32_t>(world_.size()), model)) {}

std::optional<Rank> NestedRole::number_of(Rank rank) const { return position_of(rank, world_); }

void NestedRole::on_start(Env& env) {
  NestedEnv nested(*this, env);
  role_->on_start(nested);
}

void NestedRole::on_gradient_part(Env& env, GradientPart part) {
  NestedEnv nested(*this, env);
  role_->on_gradient_part(nested, std::move(part));
}

void NestedRole::on_gradient(Env& env, Gradient gradient) {
  NestedEnv nested(*this, env);
  role_->on_gradient(nested, std::move(gradient));
}

void NestedRole::on_message(Env& env, Envelope envelope) {
  const auto from = number_of(envelope.from);
  const auto origin = number_of(envelope.stamp.origin);
  GRAPEVINE_CHECK(from && origin, "rank ", envelope.from, " sent a message into a group of others");
  envelope.from = *from;
  envelope.to = own_;
  envelope.stamp.origin = *origin;
  NestedEnv nested(*this, env);
  role_->on_message(nested, std::move(envelope));
}

void NestedRole::on_timer(Env& env, TimerId id) {
  NestedEnv nested(*this, env);
  role_->on_timer(nested, id);
}

std::int64_t NestedRole::close(Env& env) {
  NestedEnv nested(*this, env);
  return role_->close(nested);
}

void NestedRole::take_back(Env& env, std::int64_t operations) {
  NestedEnv nested(*this, env);
  role_->take_back(nested, operations);
}

void NestedRole::resolve_open(Env& env, const ClosedCounts& counts) {
  ClosedCounts numbered;
  for (const auto& [rank, of_rank] : counts)
    if (const auto number = number_of(rank)) numbered[*number] = of_rank;
  NestedEnv nested(*this, env);
  role_->resolve_open(nested, numbered);
}

void NestedRole::count_as_done(Env& env) {
  NestedEnv nested(*this, env);
  role_->count_as_done(nested);
}

void NestedRole::flush(Env& env) {
  NestedEnv nested(*this, env);
  role_->flush(nested);
}

std::vector<Awaited> NestedRole::waits() const {
  std::vector<Awaited> missing = role_->waits();
  for (Awaited& one : missing)
    if (one.from >= 0) one.from = world_[static_cast<std::size_t>(one.from)];
  return missing;
}

void NestedRole::on_peer_down(Env& env, Rank peer) {
  const auto number = number_of(peer);
  if (!number || *number == own_) return;
  NestedEnv nested(*this, env);
  role_->on_peer_down(nested, *number);
}

}  // namespace grapevine
