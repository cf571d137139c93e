// Plain steps: the sum of H steps along the gradient.
//
//   downpour:  H times s <- s - eta g;  offer u, the sum of -eta g;  theta <- theta + u
//              s <- theta  (Dean et al., NeurIPS 2012)
//   agn:       offers u / H  (Hermans et al. 2017)
//   adaptive:  as downpour;  theta <- theta + u / (tau + 1)  (Zhang et al., IJCAI 2016)
//
// Deviations: commits are -eta (g + weight decay), without momentum, as published.
#include <ATen/ATen.h>

#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/optimizer.hpp"
#include "algorithms/roles/server/server_settings.hpp"

namespace grapevine {
namespace {

class StepsClient final : public ClientRule {
 public:
  StepsClient(const RoleContext& client, bool divides, double commit_factor)
      : parts_(client.parts), divides_(divides), commit_factor_(commit_factor) {}

  void step(Env& env, ModelState& model, at::Tensor gradient, double epoch) override {
    model.lr = parts_->lr.at(epoch);
    add_partial_decay(parts_->optimizer, model.x.read(), gradient, 1);
    const double weight_decay = uniform_decay(parts_->optimizer);
    if (weight_decay != 0) gradient.add_(model.x.read(), weight_decay);
    kernels::scale(gradient, -model.lr);
    if (parts_->exchanges.longest() > 1 || server_settings(*parts_).overlap) {
      change_in_place(model.x, [&gradient](at::Tensor& x) { kernels::fold(x, gradient); });
    }
    if (!sum_.defined()) {
      sum_ = std::move(gradient);
      return;
    }
    kernels::fold(sum_, gradient);
    env.recycle(FrozenTensor::freeze(std::move(gradient)));
  }

  FrozenTensor offer(const ModelState&, std::int64_t held) override {
    if (divides_ && held > 1) kernels::scale(sum_, 1.0 / static_cast<double>(held));
    offered_ = FrozenTensor::freeze(std::exchange(sum_, at::Tensor()));
    return offered_;
  }

  double commit_factor(const ModelState&) const override { return commit_factor_; }

  void take(Env& env, ModelState& model, FrozenTensor theta) override {
    model.x = std::move(theta);
    if (offered_.defined()) env.recycle(std::exchange(offered_, {}));
  }

  void fields(Archive& a, std::int64_t d, bool) override { a.vector("update", sum_, d); }

 private:
  const std::shared_ptr<const SharedParts> parts_;
  const bool divides_;  // by the steps in it
  const double commit_factor_;
  at::Tensor sum_;        // [d] or undefined
  FrozenTensor offered_;  // the newest, which its servers have read once they answer; not saved
};

// ClientRule::commit_factor() of a rule.
using CommitFactor = double (*)(const RoleContext& client);

double whole(const RoleContext&) { return 1; }
// Of clients of one speed every commit is n - 1 versions late.
double shared(const RoleContext& client) { return 1.0 / clients_of(client); }

class AdaptiveSlice final : public SliceRule {
 public:
  Change change(const FrozenTensor&, const FrozenTensor& offered, std::int64_t tau) override {
    return {offered, 1 / (static_cast<double>(tau) + 1)};
  }
};

ServerRule steps_rule(const std::string& name, bool divides, CommitFactor factor = whole) {
  ServerRule rule;
  rule.name = name;
  rule.read = [](KeyReader& keys, Plan& plan, ServerSettings&) {
    plan.local.steps = read_local_steps(keys);
  };
  rule.client = [divides, factor](const RoleContext& client,
                                  LocalUpdate&) -> std::unique_ptr<ClientRule> {
    return std::make_unique<StepsClient>(client, divides, factor(client));
  };
  rule.slice = [](const ServerContext&) { return std::make_unique<SliceRule>(); };
  return rule;
}

}  // namespace

const ServerRule& downpour_rule() {
  static const ServerRule rule = steps_rule("downpour", false);
  return rule;
}

const ServerRule& agn_rule() {
  static const ServerRule rule = steps_rule("agn", true);
  return rule;
}

const ServerRule& adaptive_rule() {
  static const ServerRule rule = [] {
    ServerRule adaptive = steps_rule("adaptive", false, shared);
    adaptive.slice = [](const ServerContext&) -> std::unique_ptr<SliceRule> {
      return std::make_unique<AdaptiveSlice>();
    };
    return adaptive;
  }();
  return rule;
}

}  // namespace grapevine
