// Optimizers on the flat parameter tensor: SGD as one fused pass (reason: optimizer.cpp), Adam and
// AdamW by torch::optim. A part.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/archive.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct OptimizerConfig {
  std::string name = "sgd";  // sgd | adam | adamw
  double momentum = 0;       // sgd
  bool nesterov = false;     // sgd
  double weight_decay = 0;   // sgd, adam: wd z joins the gradient; adamw: x -= lr wd z, decoupled
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adam, adamw
  // The parts of the flat tensor to which weight decay applies, ascending, as begin and size;
  // empty: all of it.
  std::vector<std::pair<std::int64_t, std::int64_t>> decayed = {};
};

// For rules with a step of their own: the decay of all of x, 0 where it is of some parts only; and,
// where it is, g <- g + wd z on these, z = x/w.
double uniform_decay(const OptimizerConfig& config);
void add_partial_decay(const OptimizerConfig& config, const at::Tensor& x, at::Tensor& gradient,
                       double w);

// Not thread-safe. Holds per-parameter state of the size of x; it is never gossiped.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // out <- (x - lr * u(gradient at x/w)) * scale, where `out` is x or a distinct buffer of its
  // size: gossip keeps and sends it after a step. `w`: the push-sum weight, > 0: x is the
  // numerator of the model z = x/w, and weight decay acts at z. `x` and `gradient`: [d] float32,
  // contiguous; the handles may be other buffers at every call. `gradient` may be overwritten. One
  // pass for sgd; up to three more for the others.
  virtual void step_into(at::Tensor& out, const at::Tensor& x, at::Tensor& gradient, double lr,
                         double scale = 1, double w = 1) = 0;
  // A round of push-sum around a step:
  //   x' <- x + share;  out <- x' stepped as by step_into();  z <- out / (w scale)
  // share undefined: nothing is folded; z undefined: nothing is de-biased. `w`: of x'. The bits of
  // the three one after the other; one pass for sgd.
  virtual void push_sum_step_into(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                                  const at::Tensor& share, at::Tensor& gradient, double lr,
                                  double scale, double w);
  // x <- x - lr * u(gradient), in place.
  void step(at::Tensor& x, at::Tensor& gradient, double lr) { step_into(x, x, gradient, lr); }
  // x <- x - lr * (what u(gradient + part) of the last step had more than u(gradient)), in place:
  // `part` of that gradient comes late. sgd: exactly that, without another step of the momentum and
  // without decay. adam, adamw: one more step, for theirs depends on all of the gradient. `part`
  // may be overwritten. `w`: as above.
  virtual void step_late(at::Tensor& x, at::Tensor& part, double lr, double w = 1) = 0;
  // The state, for x of d: an optimizer that loads it continues bit for bit. Before the first step
  // it has the optimizer's name only. Errors (bad_input): entries that are missing, of another
  // optimizer, or of another shape; the optimizer is then as before.
  virtual void fields(Archive& a, std::int64_t d) = 0;
  // The state for x of d as numbers, [k] float32, of which ranks may take a mean; k depends on the
  // optimizer and d alone, and is 0 where it keeps nothing. Zeros before the first step.
  virtual at::Tensor state_vector(std::int64_t d) const = 0;
  // Takes such a state over; one of another length is of another optimizer, and is ignored.
  virtual void set_state_vector(const at::Tensor& state, std::int64_t d) = 0;
};

// Sources: Sutskever et al. 2013 (sgd), Kingma & Ba 2015 (adam), Loshchilov & Hutter 2019 (adamw).
// Errors (bad_input): unknown name with the nearest guess; negative momentum or weight decay;
// nesterov without momentum; beta outside [0, 1); negative eps.
Expected<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerConfig& config);
std::vector<std::string> optimizer_names();

}  // namespace grapevine
