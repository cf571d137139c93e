#include "algorithms/roles/common_model.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "algorithms/parts/debiased_model.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "messages/check.hpp"

namespace grapevine {

CommonModel::CommonModel(std::int32_t ranks, std::int32_t training, Rank rank, ModelState& model,
                         Given given)
    : rank_(rank),
      training_(training),
      model_(model),
      mean_weight_(given.mean_weight),
      optimizer_(given.optimizer.defined() ? std::move(given.optimizer)
                                           : at::empty({0}, model.x.read().options())),
      trained_(given.trained && rank < training),
      reduction_(make_exact_reduction(all_ranks(ranks), rank)) {}

void CommonModel::on_start(Env& env) {
  if (done_) return env.finished();
  const at::Tensor& x = model_.x.read();
  const at::Tensor weight = at::full({1}, mean_weight_ * model_.w, x.options());
  const at::Tensor trained = at::full({1}, trained_ ? 1.0 : 0.0, x.options());
  at::Tensor all = at::cat({x, weight, trained, optimizer_.to(x.device())});
  send_all(env, stamp_of(rank_, model_.step, model_.step),
           reduction_->start(0, model_.epoch, std::move(all), env.rng()));
  finish_if_done(env);
}

void CommonModel::on_gradient(Env&, Gradient) {
  GRAPEVINE_CHECK(false, "a gradient between two wirings");
}

// A server may begin once more after all ranks that train have the mean: a message to a rank that
// is done is ignored.
void CommonModel::on_message(Env& env, Envelope envelope) {
  if (done_) return;
  send_all(env, stamp_of(rank_, model_.step, model_.step),
           reduction_->on_message(envelope.from, std::move(envelope.payload)));
  finish_if_done(env);
}

void CommonModel::finish_if_done(Env& env) {
  if (!reduction_->done()) return;
  take_mean();
  if (takes_mean()) env.finished();
}

// x <- s_x / s_w;  w <- 1;  o <- s_o / s_1.
void CommonModel::take_mean() {
  const at::Tensor sum = reduction_->take_sum();
  if (!takes_mean()) return;
  const std::int64_t d = model_.x.numel();
  const auto weight = sum[d].item<double>(), trained = sum[d + 1].item<double>();
  GRAPEVINE_CHECK(weight > 0 && trained > 0, "no rank is left that has a model");
  at::Tensor x = sum.narrow(0, 0, d) / weight;
  model_.x = FrozenTensor::freeze(std::move(x));
  model_.w = 1;
  optimizer_ = sum.narrow(0, d + 2, sum.numel() - d - 2) / trained;
  done_ = true;
}

FrozenTensor CommonModel::debiased() const { return debiased_model(model_); }

std::vector<Awaited> CommonModel::waits() const {
  return reduction_->running() ? reduction_->awaited() : std::vector<Awaited>();
}

// ---- a change of members ----

std::int64_t CommonModel::close(Env&) { return done_ ? 1 : 0; }

void CommonModel::take_back(Env&, std::int64_t) {
  if (!reduction_->running()) return;
  static_cast<void>(reduction_->take_back());
}

void CommonModel::count_as_done(Env&) { reduction_->count_as_given(); }

void CommonModel::shared_fields(Archive& a) {
  a.flag("done", done_);
  a.values("optimizer", optimizer_);
}

void CommonModel::own_fields(Archive& a) {
  a.number("mean_weight", mean_weight_);
  a.flag("trained", trained_);
}

// No checkpoint is taken between two wirings.
void CommonModel::fields(Archive& a) { shared_fields(a); }

}  // namespace grapevine
