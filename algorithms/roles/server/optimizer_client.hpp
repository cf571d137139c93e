// OptimizerClient: base of the client rules whose local steps are those of the run's optimizer.
#pragma once
#include <utility>

#include "algorithms/roles/server/server_rule.hpp"

namespace grapevine {

class OptimizerClient : public ClientRule {
 public:
  // `local` outlives this, and saves its state itself.
  explicit OptimizerClient(LocalUpdate& local) : local_(local) {}

  void step(Env& env, ModelState& model, at::Tensor gradient, double epoch) final {
    gradient = local_.step(model, std::move(gradient), epoch, pool_);
    env.recycle(FrozenTensor::freeze(std::move(gradient)));
  }
  void fields(Archive&, std::int64_t, bool) final {}

 protected:
  LocalUpdate& local_;
  BufferPool pool_;
};

}  // namespace grapevine
