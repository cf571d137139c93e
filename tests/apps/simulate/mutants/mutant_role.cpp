#include "tests/apps/simulate/mutants/mutant_role.hpp"

#include <deque>
#include <utility>

#include "algorithms/wiring/role_type.hpp"

namespace grapevine {
namespace simulate_mutants {
namespace {

class MutantEnv final : public Env {
 public:
  MutantEnv(Env& env, Bug& bug) : env_(env), bug_(bug) {}
  Rank rank() const override { return env_.rank(); }
  const Membership& membership() const override { return env_.membership(); }
  Timestamp now() const override { return env_.now(); }
  Rng& rng() override { return env_.rng(); }
  void send(Rank to, Stamp stamp, Payload payload) override {
    for (int left = bug_.on_send(to, stamp, payload); left > 0; --left)
      env_.send(to, stamp, payload);
  }
  void compute(Step step, FrozenTensor z) override { env_.compute(step, std::move(z)); }
  void compute_in_parts(Step step, FrozenTensor z, const PartBegins& parts) override {
    env_.compute_in_parts(step, std::move(z), parts);
  }
  void recycle(FrozenTensor buffer) override { env_.recycle(std::move(buffer)); }
  void after(Duration delay, TimerId id) override { env_.after(delay, id); }
  void record(const Event& event) override {
    Event changed = event;
    for (int left = bug_.on_record(changed); left > 0; --left) env_.record(changed);
  }
  void finished() override { env_.finished(); }

 private:
  Env& env_;
  Bug& bug_;
};

class MutantRole final : public Role {
 public:
  MutantRole(std::unique_ptr<Role> inner, std::unique_ptr<Bug> bug)
      : inner_(std::move(inner)), bug_(std::move(bug)) {}

  void on_start(Env& env) override { inner_->on_start(mutant(env)); }
  void on_gradient_part(Env& env, GradientPart part) override {
    inner_->on_gradient_part(mutant(env), std::move(part));
  }
  void on_gradient(Env& env, Gradient gradient) override {
    bug_->on_gradient(gradient);
    inner_->on_gradient(mutant(env), std::move(gradient));
  }
  void on_message(Env& env, Envelope envelope) override {
    for (int left = bug_->on_receive(envelope); left > 0; --left)
      inner_->on_message(mutant(env), envelope);
  }
  void on_timer(Env& env, TimerId id) override { inner_->on_timer(mutant(env), id); }
  void on_peer_down(Env& env, Rank peer) override { inner_->on_peer_down(mutant(env), peer); }
  FrozenTensor debiased() const override { return inner_->debiased(); }
  void restart(FrozenTensor z) override { inner_->restart(std::move(z)); }
  FrozenTensor numerator() const override { return inner_->numerator(); }
  void fields(Archive& a) override { inner_->fields(a); }
  std::int64_t close(Env& env) override { return inner_->close(mutant(env)); }
  void take_back(Env& env, std::int64_t operations) override {
    inner_->take_back(mutant(env), operations);
  }
  void count_as_done(Env& env) override { inner_->count_as_done(mutant(env)); }
  void shared_fields(Archive& a) override { inner_->shared_fields(a); }
  void own_fields(Archive& a) override { inner_->own_fields(a); }
  void joiner_fields(Archive& a) override {
    inner_->joiner_fields(a);
    if (a.loads()) bug_->on_joined(*inner_);
  }
  std::vector<Awaited> waits() const override { return inner_->waits(); }
  StateDict measures() const override { return inner_->measures(); }

 private:
  // For one call: the bug stays.
  Env& mutant(Env& env) {
    env_ = std::make_unique<MutantEnv>(env, *bug_);
    return *env_;
  }

  const std::unique_ptr<Role> inner_;
  const std::unique_ptr<Bug> bug_;
  std::unique_ptr<MutantEnv> env_;
};

std::unique_ptr<Role> with_bug(std::unique_ptr<Role> inner, std::unique_ptr<Bug> bug) {
  if (!bug) return inner;
  return std::make_unique<MutantRole>(std::move(inner), std::move(bug));
}

}  // namespace

void plant(SimJob& made, MakeBug make_bug) {
  static std::deque<RoleType> types;  // a plan points to its type
  auto parts = std::make_shared<SharedParts>(*made.job.run.parts);
  RoleType& type = types.emplace_back(*parts->plan.role);
  type.make = [make = type.make, make_bug](RoleContext context) {
    const Place place{context.rank, context.ranks, !context.parts->began_together(), false,
                      context.model};
    auto role = make(std::move(context));
    return with_bug(std::move(role), make_bug(place));
  };
  if (type.make_server)
    type.make_server = [make = type.make_server, make_bug](ServerContext context) {
      const Place place{context.rank, static_cast<std::int32_t>(context.clients.size()), false,
                        true, context.model};
      auto role = make(std::move(context));
      return with_bug(std::move(role), make_bug(place));
    };
  parts->plan.role = &type;
  made.job.run.parts = std::move(parts);
}

}  // namespace simulate_mutants
}  // namespace grapevine
