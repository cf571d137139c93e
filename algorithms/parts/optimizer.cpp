// SGD does not go through torch::optim, which passes over memory once per operation and allocates
// temporaries of the model's size. kernels_bench, 25 M parameters, momentum 0.9, one thread,
// LibTorch 1.13 (median CPU time of a step, 7 runs, shared 2-core machine): the fused pass takes
// 16-17 ms under every rule; torch::optim::SGD 28 ms (1.7x) plain, 111 ms (6.7x) with nesterov,
// 115 ms (6.9x) with weight decay, 190 ms (11x) with both. Adam and AdamW stay torch::optim.
#include "algorithms/parts/optimizer.hpp"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <utility>

#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"
#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

void name_field(Archive& a, const std::string& name) {
  std::string saved = name;
  a.text("optimizer", saved);
  if (saved != name)
    a.fail(bad_input("saved state is of optimizer '" + saved + "', this run uses '" + name +
                     "': resume with --optimizer " + saved));
}

// Calls `change(of x, of the other)` for each part with decay.
template <class Change>
void for_decayed(const OptimizerConfig& config, const at::Tensor& x, const at::Tensor& other,
                 Change change) {
  if (config.weight_decay == 0) return;
  for (const auto& [begin, size] : config.decayed) {
    GRAPEVINE_CHECK(begin + size <= x.numel(), "weight decay of ", begin, " + ", size, " of ",
                    x.numel());
    change(x.narrow(0, begin, size), other.narrow(0, begin, size));
  }
}

}  // namespace

double uniform_decay(const OptimizerConfig& config) {
  return config.decayed.empty() ? config.weight_decay : 0;
}

void add_partial_decay(const OptimizerConfig& config, const at::Tensor& x, at::Tensor& gradient,
                       double w) {
  for_decayed(config, x, gradient, [&](const at::Tensor& of_x, const at::Tensor& of_g) {
    of_g.add_(of_x, config.weight_decay / w);
  });
}

namespace {

class FusedSgd : public Optimizer {
 public:
  explicit FusedSgd(const OptimizerConfig& config) : config_(config) {}

  // wd z = (wd / w) x.
  void step_into(at::Tensor& out, const at::Tensor& x, at::Tensor& gradient, double lr,
                 double scale, double w) override {
    if (config_.momentum != 0 && !velocity_.defined()) velocity_ = at::zeros_like(x);
    add_partial_decay(config_, x, gradient, w);
    kernels::sgd_step_into(
        out, x, velocity_, gradient,
        {lr, config_.momentum, uniform_decay(config_) / w, config_.nesterov, scale});
  }

  // Decay of some parts only is of the folded x, in a pass of its own.
  void push_sum_step_into(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                          const at::Tensor& share, at::Tensor& gradient, double lr, double scale,
                          double w) override {
    const bool alone = !share.defined() && !z.defined();
    if (alone || (config_.weight_decay != 0 && !config_.decayed.empty()))
      return Optimizer::push_sum_step_into(out, z, x, share, gradient, lr, scale, w);
    if (config_.momentum != 0 && !velocity_.defined()) velocity_ = at::zeros_like(x);
    kernels::push_sum_step_into(
        out, z, x, share, velocity_, gradient,
        {lr, config_.momentum, config_.weight_decay / w, config_.nesterov, scale}, w * scale);
  }

  // v <- v + e;  x <- x - lr e, with Nesterov x - lr (1 + m) e.
  void step_late(at::Tensor& x, at::Tensor& part, double lr, double /*w*/) override {
    if (config_.momentum != 0 && !velocity_.defined()) velocity_ = at::zeros_like(x);
    if (config_.momentum != 0) kernels::fold(velocity_, part);
    x.sub_(part, lr * (config_.nesterov ? 1 + config_.momentum : 1));
  }

  void fields(Archive& a, std::int64_t d) override {
    name_field(a, config_.name);
    at::Tensor velocity = velocity_;
    if (config_.momentum != 0) a.vector("velocity", velocity, d);
    if (a.loads() && a.ok()) velocity_ = std::move(velocity);
  }

  at::Tensor state_vector(std::int64_t d) const override {
    if (config_.momentum == 0) return at::empty({0}, at::kFloat);
    return velocity_.defined() ? velocity_.clone() : at::zeros({d}, at::kFloat);
  }

  void set_state_vector(const at::Tensor& state, std::int64_t d) override {
    if (config_.momentum != 0 && state.numel() == d) velocity_ = state.clone();
  }

 private:
  const OptimizerConfig config_;
  at::Tensor velocity_;  // [d]; undefined before the first step and without momentum
};

// Adam and AdamW, which share the shape of their options and state. torch::optim keys its state by
// the identity of the parameter: handle_ is always that one parameter, and each step gives it the
// bytes of the caller's x. Between steps it holds an empty tensor, so that x has one owner again.
template <class Algorithm, class Options, class State>
class TorchOptimizer : public Optimizer {
 public:
  explicit TorchOptimizer(const OptimizerConfig& config)
      : config_(config),
        name_(config.name),
        weight_decay_(uniform_decay(config)),
        empty_(at::empty({0}, at::kFloat)),
        handle_(at::empty({0}, at::kFloat)),
        algorithm_({handle_}, Options(0).betas({config.beta1, config.beta2}).eps(config.eps)) {}

  void step_into(at::Tensor& out, const at::Tensor& x, at::Tensor& gradient, double lr,
                 double scale, double w) override {
    GRAPEVINE_CHECK(x.is_contiguous() && x.dim() == 1 && x.sizes() == gradient.sizes(),
                    "x and gradient must be flat and of one size");
    if (const State* state = current())
      GRAPEVINE_CHECK(state->exp_avg().sizes() == x.sizes(), "optimizer state is of ",
                      state->exp_avg().numel(), " parameters, x of ", x.numel());
    if (!out.is_same(x)) out.copy_(x);
    if (name_ == "adam") add_partial_decay(config_, x, gradient, w);
    // As torch::optim::AdamW does, before the step.
    if (name_ == "adamw")
      for_decayed(config_, out, out, [&](const at::Tensor& part, const at::Tensor& /*same*/) {
        part.mul_(1 - lr * config_.weight_decay / w);
      });
    update(out, gradient, lr, w);
    if (scale != 1) kernels::scale(out, scale);
  }

  void step_late(at::Tensor& x, at::Tensor& part, double lr, double w) override {
    step_into(x, x, part, lr, 1, w);
  }

  void fields(Archive& a, std::int64_t d) override {
    const State* state = a.loads() ? nullptr : current();
    auto step = state ? static_cast<std::int64_t>(state->step()) : 0;
    at::Tensor mean = state ? state->exp_avg() : at::Tensor();
    at::Tensor square = state ? state->exp_avg_sq() : at::Tensor();
    name_field(a, name_);
    if (a.has("step", state != nullptr)) {
      for (const char* name : {"exp_avg", "exp_avg_sq"}) a.needs(name);
      a.count("step", step, 1);
      a.vector("exp_avg", mean, d);
      a.vector("exp_avg_sq", square, d);
    }
    if (!a.loads() || !a.ok()) return;
    algorithm_.state().clear();
    if (step > 0) make_state(step, std::move(mean), std::move(square));
  }

  // The two moments, and the number of steps.
  at::Tensor state_vector(std::int64_t d) const override {
    const State* state = current();
    if (state == nullptr) return at::zeros({2 * d + 1}, at::kFloat);
    const at::Tensor& mean = state->exp_avg();
    return at::cat({mean, state->exp_avg_sq(),
                    at::full({1}, static_cast<double>(state->step()), mean.options())});
  }

  void set_state_vector(const at::Tensor& state, std::int64_t d) override {
    if (state.numel() != 2 * d + 1) return;
    algorithm_.state().clear();
    const auto steps = static_cast<std::int64_t>(std::llround(state[2 * d].item<float>()));
    if (steps > 0) make_state(steps, state.narrow(0, 0, d).clone(), state.narrow(0, d, d).clone());
  }

 private:
  // The state after a step, or nullptr before the first.
  const State* current() const {
    const auto& states = algorithm_.state();
    return states.empty() ? nullptr : static_cast<const State*>(states.begin()->second.get());
  }

  // wd z = (wd / w) x: torch adds that to the gradient (Adam), or takes lr times that off x
  // (AdamW).
  void update(const at::Tensor& x, const at::Tensor& gradient, double lr, double w) {
    auto& options = static_cast<Options&>(algorithm_.param_groups().front().options());
    options.lr(lr);
    options.weight_decay(weight_decay_ / w);
    handle_.set_data(x);
    handle_.mutable_grad() = gradient;
    algorithm_.step();
    handle_.mutable_grad() = at::Tensor();
    handle_.set_data(empty_);
  }

  // LibTorch 1.13 and 2 name the entry of a parameter differently; a step of no elements lets
  // either make its own.
  void make_state(std::int64_t step, at::Tensor mean, at::Tensor square) {
    update(empty_, empty_, 0, 1);
    auto& state = static_cast<State&>(*algorithm_.state().begin()->second);
    state.step(step);
    state.exp_avg(std::move(mean));
    state.exp_avg_sq(std::move(square));
  }

  const OptimizerConfig config_;
  const std::string name_;
  const double weight_decay_;
  const at::Tensor empty_;
  at::Tensor handle_;
  Algorithm algorithm_;
};

using torch::optim::Adam;
using torch::optim::AdamOptions;
using torch::optim::AdamParamState;
using torch::optim::AdamW;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

Expected<void> check_config(const OptimizerConfig& config) {
  const auto negative = [](double value) { return !(std::isfinite(value) && value >= 0); };
  const auto outside = [](double kept) { return !(kept >= 0 && kept < 1); };
  if (negative(config.weight_decay))
    return bad_input("--weight-decay " + number_text(config.weight_decay) +
                     ": expected a finite number >= 0");
  if (config.name == "sgd") {
    if (outside(config.momentum))
      return bad_input("--momentum " + number_text(config.momentum) +
                       ": expected a number in [0, 1), like 0.9");
    if (config.nesterov && config.momentum == 0)
      return bad_input("--nesterov without momentum: set --momentum above 0, like 0.9");
    return {};
  }
  if (outside(config.beta1) || outside(config.beta2))
    return bad_input("bad betas " + number_text(config.beta1) + ", " + number_text(config.beta2) +
                     " of optimizer '" + config.name + "': expected numbers in [0, 1)");
  if (negative(config.eps))
    return bad_input("bad eps " + number_text(config.eps) + " of optimizer '" + config.name +
                     "': expected a finite number >= 0");
  return {};
}

}  // namespace

void Optimizer::push_sum_step_into(at::Tensor& out, at::Tensor& z, const at::Tensor& x,
                                   const at::Tensor& share, at::Tensor& gradient, double lr,
                                   double scale, double w) {
  if (share.defined()) kernels::fold_into(out, x, share);
  step_into(out, share.defined() ? out : x, gradient, lr, scale, w);
  if (z.defined()) kernels::debias(z, out, w * scale);
}

std::vector<std::string> optimizer_names() { return {"sgd", "adam", "adamw"}; }

Expected<std::unique_ptr<Optimizer>> make_optimizer(const OptimizerConfig& config) {
  using Made = std::unique_ptr<Optimizer>;
  const bool sgd = config.name == "sgd", adam = config.name == "adam";
  if (!sgd && !adam && config.name != "adamw")
    return unknown_name("optimizer", config.name, optimizer_names());
  if (Expected<void> valid = check_config(config); !valid) return valid.error();
  if (sgd) return Made(std::make_unique<FusedSgd>(config));
  if (adam)
    return Made(std::make_unique<TorchOptimizer<Adam, AdamOptions, AdamParamState>>(config));
  return Made(std::make_unique<TorchOptimizer<AdamW, AdamWOptions, AdamWParamState>>(config));
}

}  // namespace grapevine
