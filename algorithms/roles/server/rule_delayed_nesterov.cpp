// Differences, with Nesterov's momentum over N of them: Liu et al.: "Asynchronous Local-SGD
// Training for Language Modeling", 2024, Algorithm 3 with c = 0.
// Symbols: D = s - x after H steps of the optimizer on x, nu outer rate, mu outer momentum, N the
//   commits of a momentum step (the clients by default).
//
//   client:  H steps of the optimizer on x;  offer D;  x <- theta
//   server:  theta <- theta - nu D / N;  every N-th:  u <- mu u + mean of the last N D;
//            theta <- theta - nu mu u
//
// N commits computed at one theta are one step of DiLoCo. N = 1: Nesterov's momentum for each
//   commit. Where nu has a schedule, it is that of the server's clock before the commit. Memory of
//   a server: 2 d more.
#include <ATen/ATen.h>

#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/server/optimizer_client.hpp"
#include "algorithms/roles/server/server_settings.hpp"

namespace grapevine {
namespace {

// N, of that many clients.
std::int64_t commits_of_step(const SharedParts& parts, std::int64_t clients) {
  const std::int64_t set = server_settings(parts).outer_every;
  return set > 0 ? set : clients;
}

class DifferencesClient final : public OptimizerClient {
 public:
  DifferencesClient(const RoleContext& client, LocalUpdate& local)
      : OptimizerClient(local),
        rate_(outer_rate(client.parts->plan.local, client.parts->horizon)),
        every_(commits_of_step(*client.parts, clients_of(client))) {}

  FrozenTensor offer(const ModelState& model, std::int64_t) override {
    return FrozenTensor::freeze(local_.packed(model, pool_));
  }

  void take(Env&, ModelState& model, FrozenTensor theta) override {
    model.x = std::move(theta);
    local_.restart(model);
  }

  double commit_factor(const ModelState& model) const override {
    return -rate_.at(model.epoch) / static_cast<double>(every_);
  }

 private:
  const LrSchedule rate_;
  const std::int64_t every_;
};

class DelayedNesterovSlice final : public SliceRule {
 public:
  explicit DelayedNesterovSlice(const ServerContext& server)
      : model_(server.model),
        rate_(outer_rate(server.parts->plan.local, server.parts->horizon)),
        momentum_(server.parts->plan.local.outer_momentum),
        every_(commits_of_step(*server.parts, static_cast<std::int64_t>(server.clients.size()))) {}

  Change change(const FrozenTensor&, const FrozenTensor& offered, std::int64_t) override {
    const double share = 1 / static_cast<double>(every_), rate = rate_.at(model_.epoch);
    at::Tensor change = offered.read() * -(rate * share);
    if (momentum_ == 0) return {FrozenTensor::freeze(std::move(change)), 1};
    if (!sum_.defined()) sum_ = at::zeros_like(change);
    kernels::fold(sum_, offered.read());
    if (++count_ >= every_) {
      if (!velocity_.defined()) velocity_ = at::zeros_like(change);
      velocity_.mul_(momentum_).add_(sum_, 1 / static_cast<double>(count_));
      change.add_(velocity_, -rate * momentum_);
      sum_.zero_();
      count_ = 0;
    }
    return {FrozenTensor::freeze(std::move(change)), 1};
  }

  void fields(Archive& a, std::int64_t k) override {
    a.count("count", count_);  // of fewer clients now, it may be beyond N
    a.vector("sum", sum_, k);
    a.vector("velocity", velocity_, k);
  }

 private:
  const ModelState& model_;  // for its clock
  const LrSchedule rate_;
  const double momentum_;
  const std::int64_t every_;  // N
  std::int64_t count_ = 0;    // commits since the last momentum step
  at::Tensor sum_;            // [k]: of them; or undefined
  at::Tensor velocity_;       // [k] u, or undefined
};

}  // namespace

const ServerRule& delayed_nesterov_rule() {
  static const ServerRule rule = [] {
    ServerRule nesterov;
    nesterov.name = "delayed-nesterov";
    nesterov.pack = Pack::difference;
    nesterov.has_optimizer = nesterov.uses_momentum = true;
    nesterov.read = [](KeyReader& keys, Plan& plan, ServerSettings& server) {
      plan.local.steps = read_local_steps(keys);
      read_outer_rates(keys, plan.local, 0.7, 0.9);
      server.outer_every = keys.whole(
          "outer_every", 0, 1, "N: commits of a momentum step; the number of clients by default");
    };
    nesterov.client = [](const RoleContext& client,
                         LocalUpdate& local) -> std::unique_ptr<ClientRule> {
      return std::make_unique<DifferencesClient>(client, local);
    };
    nesterov.slice = [](const ServerContext& server) -> std::unique_ptr<SliceRule> {
      return std::make_unique<DelayedNesterovSlice>(server);
    };
    return nesterov;
  }();
  return rule;
}

}  // namespace grapevine
