// Optimizers on the flat parameter tensor: SGD as one fused pass (optimizer.cpp says why), Adam and
// AdamW by torch::optim. A part.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "algorithms/state_dict.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct OptimizerConfig {
  std::string name = "sgd";  // sgd | adam | adamw
  double momentum = 0;       // sgd
  bool nesterov = false;     // sgd
  double weight_decay = 0;   // sgd, adam: added to the gradient; adamw: decoupled, x *= 1 - lr * wd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adam, adamw
};

// Not thread-safe. Holds per-parameter state of the size of x; none of it is ever gossiped.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // x <- x - lr * u(gradient), in place. `x` and `gradient`: [d] float32, contiguous; the handles
  // may be other buffers at every call. `gradient` may be overwritten.
  virtual void step(at::Tensor& x, at::Tensor& gradient, double lr) = 0;
  // out <- (x - lr * u(gradient)) * scale, where `out` is x or a distinct buffer of its size: what
  // gossip keeps and sends after a step. One pass for sgd; up to three more for the others.
  virtual void step_into(at::Tensor& out, const at::Tensor& x, at::Tensor& gradient, double lr,
                         double scale);
  // A copy of the state; load() of it resumes bit for bit. Before the first step it says the
  // optimizer's name alone.
  virtual StateDict save() const = 0;
  // Errors (bad_input): entries that are missing, of another optimizer, or of a wrong shape; the
  // optimizer is then as before.
  virtual Expected<void> load(const StateDict& state) = 0;
};

// Sources: Sutskever et al. 2013 (sgd), Kingma & Ba 2015 (adam), Loshchilov & Hutter 2019 (adamw).
// Errors (bad_input): unknown name with the nearest guess; negative momentum or weight decay;
// nesterov without momentum; beta outside [0, 1); negative eps.
Expected<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerConfig& config);
std::vector<std::string> optimizer_names();

}  // namespace grapevine
