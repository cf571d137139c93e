// Elastic averaging: Zhang, Choromanska, LeCun: "Deep learning with Elastic Averaging SGD", NeurIPS
// 2015, Algorithm 1.
//
//   H steps of the optimizer on x;  offer x
//   e = alpha (x - theta);  theta <- theta + e;  x <- x - e
//   synchronous: waits for all clients that take part; every e against the same theta
//
// alpha = beta / n, beta the elasticity. The optimizer's momentum is the client's own.
#include <ATen/ATen.h>

#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/server/optimizer_client.hpp"
#include "algorithms/roles/server/server_settings.hpp"

namespace grapevine {
namespace {

class ElasticClient final : public OptimizerClient {
 public:
  using OptimizerClient::OptimizerClient;

  FrozenTensor offer(const ModelState& model, std::int64_t) override { return model.x; }

  void take(Env&, ModelState& model, FrozenTensor e) override {
    update_frozen(model.x, pool_, [&e](at::Tensor& out, const at::Tensor& x) {
      kernels::subtract_into(out, x, e.read());
    });
  }
};

class ElasticSlice final : public SliceRule {
 public:
  explicit ElasticSlice(const ServerContext& server)
      : alpha_(server_settings(*server.parts).elasticity /
               static_cast<double>(server.clients.size())) {
    changes_.add_capacity(server.clients.size());
  }

  Change change(const FrozenTensor& theta, const FrozenTensor& offered, std::int64_t) override {
    at::Tensor e = changes_.take(theta);
    kernels::elastic_into(e, offered.read(), theta.read(), alpha_);
    FrozenTensor change = FrozenTensor::freeze(std::move(e));
    changes_.give(change);  // for a later one, once its client has read it
    return {std::move(change), 1};
  }
  bool answers_change() const override { return true; }

 private:
  const double alpha_;
  BufferPool changes_;
};

}  // namespace

const ServerRule& easgd_rule() {
  static const ServerRule rule = [] {
    ServerRule easgd;
    easgd.name = "easgd";
    easgd.pack = Pack::model;
    easgd.has_optimizer = easgd.uses_momentum = true;
    easgd.read = [](KeyReader& keys, Plan& plan, ServerSettings& server) {
      plan.local.steps = read_local_steps(keys);
      server.elasticity =
          keys.number("elasticity", server.elasticity, {}, "beta, workers times alpha");
      server.synchronous =
          keys.flag("synchronous", false, "whether all clients wait for each other");
    };
    easgd.client = [](const RoleContext&, LocalUpdate& local) -> std::unique_ptr<ClientRule> {
      return std::make_unique<ElasticClient>(local);
    };
    easgd.slice = [](const ServerContext& server) -> std::unique_ptr<SliceRule> {
      return std::make_unique<ElasticSlice>(server);
    };
    return easgd;
  }();
  return rule;
}

}  // namespace grapevine
