// Gradient energy matching: Hermans & Louppe: "Gradient Energy Matching for Distributed
// Asynchronous Gradient Descent", 2018.
// Symbols: m the proxy, delta a client's step.
//
//   delta = -eta g;  m <- mu m + delta;  ask; granted theta: commit
//   clamp((kappa |m| - |theta - s|) / (|delta| + 1e-12), 0, 5) * delta;  s <- theta
//
// gem computes on from theta as it was before its own commit, as published: on one worker with a
//   constant gradient it steps by 1, .9, 1.81, 1.63, … times eta, not as momentum SGD.
// Memory: 2 d beside s.
#include <ATen/ATen.h>

#include <utility>

#include "algorithms/parts/optimizer.hpp"
#include "algorithms/roles/server/gem_figures.hpp"
#include "algorithms/roles/server/server_settings.hpp"

namespace grapevine {
namespace {

constexpr double kMaxSeconds = 1e6;

class GemClient final : public ClientRule {
 public:
  explicit GemClient(const RoleContext& client)
      : parts_(client.parts),
        figures_(parts_->layout, parts_->plan.servers, parts_->horizon.steps) {}

  void step(Env&, ModelState& model, at::Tensor gradient, double epoch) override {
    model.lr = parts_->lr.at(epoch);
    if (!proxy_.defined()) proxy_ = at::zeros_like(gradient);
    const OptimizerConfig& optimizer = parts_->optimizer;
    add_partial_decay(optimizer, model.x.read(), gradient, 1);
    kernels::advance_proxy(gradient, proxy_, model.x.read(), model.lr, optimizer.momentum,
                           uniform_decay(optimizer));
    delta_ = std::move(gradient);
  }

  FrozenTensor offer(const ModelState& model, std::int64_t) override {
    figures_.begin(model.step, delta_);
    return {};
  }

  void commit_into(at::Tensor& u, const Slice& slice, const FrozenTensor& theta,
                   const ModelState& model) override {
    const auto part = [&slice](const at::Tensor& t) {
      return t.narrow(0, slice.begin, slice.size);
    };
    const at::Tensor s = part(model.x.read());
    kernels::match_energy_into(u, part(delta_), part(proxy_), theta.read(), s,
                               server_settings(*parts_).kappa);
    if (figures_.measuring()) figures_.add(slice, theta.read(), s, part(proxy_), part(delta_), u);
  }

  // pi is 1: without theta nothing is known of the energy that it has left.
  at::Tensor step_in(const Slice& slice) const override {
    return delta_.narrow(0, slice.begin, slice.size);
  }

  void take(Env& env, ModelState& model, FrozenTensor theta) override {
    model.x = std::move(theta);
    env.recycle(FrozenTensor::freeze(std::exchange(delta_, at::Tensor())));
  }

  void fields(Archive& a, std::int64_t d, bool waits) override {
    a.vector("update", delta_, d);
    a.vector("proxy", proxy_, d);
    if (!waits) return;
    a.require(delta_.defined(), "update", "is missing");
    a.require(proxy_.defined(), "proxy", "is missing");
  }

  StateDict measures() const override { return figures_.measures(); }

 private:
  const std::shared_ptr<const SharedParts> parts_;
  at::Tensor delta_, proxy_;  // [d] or undefined
  GemFigures figures_;
};

}  // namespace

const ServerRule& gem_rule() {
  static const ServerRule rule = [] {
    ServerRule gem;
    gem.name = "gem";
    gem.takes_turns = true;
    gem.uses_momentum = true;
    gem.read = [](KeyReader& keys, Plan&, ServerSettings& server) {
      server.kappa = keys.number("kappa", server.kappa, {},
                                 "energy of the central variable over that of the proxy");
      server.strict =
          keys.choice<bool>("section", "strict", {{"strict", true}, {"relaxed", false}},
                            "whether one client at a time is between its pull and its commit");
      server.section_timeout =
          keys.number("section_timeout", server.section_timeout, {0, kMaxSeconds, true},
                      "seconds after which a client that stalls loses its turn");
    };
    gem.client = [](const RoleContext& client, LocalUpdate&) -> std::unique_ptr<ClientRule> {
      return std::make_unique<GemClient>(client);
    };
    gem.slice = [](const ServerContext&) { return std::make_unique<SliceRule>(); };
    return gem;
  }();
  return rule;
}

}  // namespace grapevine
