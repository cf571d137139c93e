#include "algorithms/parts/local_update.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <ATen/ATen.h>

#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

const char* pack_name(Pack pack) {
  return pack == Pack::gradient ? "gradient" : pack == Pack::model ? "model" : "difference";
}

Pack read_pack(KeyReader& keys, const std::vector<Pack>& packs, const std::string& why) {
  std::vector<std::pair<std::string, Pack>> values;
  for (const Pack pack : {Pack::gradient, Pack::model, Pack::difference})
    values.emplace_back(pack_name(pack), pack);
  const Pack pack =
      keys.choice("pack", pack_name(packs.front()), values, "the content of an exchange");
  keys.only_where("pack", std::find(packs.begin(), packs.end(), pack) != packs.end(),
                  why + ", choose pack = '" + pack_name(packs.front()) + "'");
  return pack;
}

LocalSteps read_local_steps(KeyReader& keys) {
  LocalSteps steps;
  steps.by_epoch = read_counts(keys, "local_steps", "1", 1,
                               "H: steps of each rank from one exchange to the next, by epoch");
  steps.alpha = keys.number("qsr", 0, {},
                            "alpha of the quadratic synchronization rule: at least (alpha/lr)^2 "
                            "local steps");
  return steps;
}

namespace {

Expected<LrSchedule> make_outer_rate(const LocalUpdateSettings& local, double epochs) {
  LrConfig config;
  config.lr = local.outer_lr;
  config.spec = local.outer_schedule;
  config.epochs = epochs > 0 ? epochs : 1;
  return LrSchedule::make(config);
}

}  // namespace

LrSchedule outer_rate(const LocalUpdateSettings& local, const Horizon& horizon) {
  const auto rate = make_outer_rate(local, horizon.run_epochs());
  GRAPEVINE_CHECK(rate.ok(), "the schedule was checked when it was read");
  return rate->among(horizon);
}

void read_outer(KeyReader& keys, LocalUpdateSettings& local) {
  const std::vector<std::pair<std::string, Outer>> kinds = {{"none", Outer::none},
                                                            {"nesterov", Outer::nesterov},
                                                            {"momentum", Outer::momentum},
                                                            {"slowmo", Outer::slowmo}};
  local.outer =
      keys.choice("outer", "none", kinds, "the optimizer that steps along mean differences");
  for (std::size_t i = 1; i < kinds.size(); ++i)
    keys.where("outer", kinds[i].first, [&, kind = kinds[i].second] {
      if (kind == Outer::slowmo) return read_outer_rates(keys, local, 1, 0.5);
      read_outer_rates(keys, local, 0.7, 0.9);
    });
}

void read_mixed(KeyReader& keys, LocalUpdateSettings& local, const std::string& why) {
  local.pack = read_pack(keys, {Pack::model, Pack::difference}, why);
  keys.where("pack", "difference", [&] { read_outer(keys, local); });
  if (local.outer == Outer::none) local.pack = Pack::model;
}

void read_quasi_global(KeyReader& keys, LocalUpdateSettings& local) {
  local.quasi_global = keys.number(
      "quasi_global", 0, {0, 1},
      "mu: momentum of what the mixed model does, the part of each step in its mean; 0: of own "
      "gradients");
}

void read_outer_rates(KeyReader& keys, LocalUpdateSettings& local, double rate, double momentum) {
  local.outer_lr = keys.number("outer_lr", rate, {}, "the outer optimizer's rate");
  local.outer_schedule =
      keys.text("outer_schedule", "constant", "constant | step:GAMMA@E1,E2,… | cosine[:FLOOR]",
                "of the outer optimizer's rate, by epoch");
  if (auto rate = make_outer_rate(local, 1); !rate)
    keys.fail(bad_input("wiring.outer_schedule: " + rate.error().message));
  // With 1 the sum of past steps would never fade.
  local.outer_momentum = keys.number("outer_momentum", momentum, {0, 1, false, true},
                                     "the outer optimizer's momentum");
}

ClipSettings read_clip(KeyReader& keys, bool sums) {
  ClipSettings clip;
  const double most = std::numeric_limits<double>::max();
  clip.norm =
      keys.number("clip", 0, {0, most, true}, "the largest L2 norm of a gradient; none by default");
  if (!sums) return clip;
  keys.only_where("clip_at", keys.has("clip"), "a wiring without clip: give clip a norm");
  if (keys.lists() || keys.has("clip"))
    clip.at = keys.choice<ClipSettings::At>(
        "clip_at", "sum", {{"sum", ClipSettings::At::mean}, {"local", ClipSettings::At::own_part}},
        "clip the mean of all ranks, or each rank's own to 1/sqrt(ranks) of the norm");
  return clip;
}

namespace {

std::unique_ptr<Optimizer> make_outer(const LocalUpdateSettings& settings) {
  if (settings.outer == Outer::none) return nullptr;
  OptimizerConfig config;
  config.momentum = settings.outer_momentum;
  config.nesterov = settings.outer == Outer::nesterov && settings.outer_momentum > 0;
  return *make_optimizer(config);
}

}  // namespace

LocalUpdate::LocalUpdate(const LocalUpdateSettings& settings, const ExchangeSteps& exchanges,
                         const Horizon& horizon, const LrSchedule& lr, std::int32_t ranks,
                         std::unique_ptr<Optimizer> optimizer, double momentum, bool nesterov)
    : settings_(settings),
      exchanges_(exchanges),
      lr_(lr),
      outer_lr_(outer_rate(settings, horizon)),
      ranks_(ranks),
      optimizer_(std::move(optimizer)),
      outer_(make_outer(settings)),
      momentum_(momentum),
      nesterov_(nesterov) {}

at::Tensor LocalUpdate::step(ModelState& model, at::Tensor g, double epoch, BufferPool& pool) {
  StepRound alone;
  return step(model, std::move(g), epoch, pool, alone);
}

at::Tensor LocalUpdate::step(ModelState& model, at::Tensor g, double epoch, BufferPool& pool,
                             StepRound& round) {
  GRAPEVINE_CHECK(settings_.quasi_global == 0 || !round.share.defined(),
                  "quasi-global momentum reads x before the step: it must have its share");
  begin(model);
  clip_own(g);
  if (settings_.quasi_global > 0) add_quasi_global(model, g);
  update(model, g, epoch, pool, round);
  return g;
}

at::Tensor LocalUpdate::step_along_mean(ModelState& model, at::Tensor mean, double epoch,
                                        BufferPool& pool) {
  if (settings_.clip.clips_mean()) kernels::clip(mean, settings_.clip.norm);
  StepRound alone;
  update(model, mean, epoch, pool, alone);
  return mean;
}

void LocalUpdate::step_along_late(ModelState& model, at::Tensor part, double epoch) {
  if (settings_.clip.clips_mean()) kernels::clip(part, settings_.clip.norm);
  model.lr = lr_.at(epoch);
  change_in_place(model.x,
                  [&](at::Tensor& x) { optimizer_->step_late(x, part, model.lr, model.w); });
}

void LocalUpdate::update(ModelState& model, at::Tensor& g, double epoch, BufferPool& pool,
                         StepRound& round) {
  model.lr = lr_.at(epoch);
  at::Tensor z = round.debiases ? pool.take(model.x) : at::Tensor();
  update_frozen(model.x, pool, [&](at::Tensor& out, const at::Tensor& x) {
    optimizer_->push_sum_step_into(out, z, x, round.share.read(), g, model.lr, round.kept, model.w);
  });
  model.w *= round.kept;
  if (z.defined()) round.z = FrozenTensor::freeze(std::move(z));
}

void LocalUpdate::clip_own(at::Tensor& g) const {
  const ClipSettings& clip = settings_.clip;
  if (clip.norm == 0 || clip.at == ClipSettings::At::mean) return;
  kernels::clip(g, clip.at == ClipSettings::At::own ? clip.norm : clip.norm / std::sqrt(ranks_));
}

at::Tensor LocalUpdate::packed(const ModelState& model, BufferPool& pool) const {
  if (settings_.pack == Pack::model) return pool.copy_of(model.x.read(), model.x);
  at::Tensor difference = pool.take(model.x);
  kernels::subtract_into(difference, anchor_.read(), model.x.read());
  return difference;
}

namespace {

// As update_frozen(), but in place also where a device's stream has to wait for readers: after an
// exchange they have finished, except in an aggregate with overlap, whose gradient at x may be
// under way.
template <class F>
void update_exchanged(FrozenTensor& x, BufferPool& pool, F&& f) {
  if (x.sole_owner()) return change_in_place(x, [&f](at::Tensor& own) { f(own, own); });
  update_frozen(x, pool, f);
}

}  // namespace

at::Tensor LocalUpdate::take_mean(ModelState& model, at::Tensor mean, double epoch,
                                  BufferPool& pool) {
  if (settings_.pack == Pack::model) {
    pool.give(std::exchange(model.x, frozen_successor(model.x, std::move(mean))));
    return {};
  }
  const bool gradient = settings_.pack == Pack::gradient;
  if (gradient && settings_.clip.clips_mean()) kernels::clip(mean, settings_.clip.norm);
  if (gradient) model.lr = lr_.at(epoch);
  if (!gradient) pool.give(std::exchange(model.x, std::move(anchor_)));
  update_exchanged(model.x, pool, [&](at::Tensor& out, const at::Tensor& x) {
    if (gradient)
      optimizer_->step_into(out, x, mean, model.lr);
    else
      outer_step(out, x, mean, epoch);
  });
  if (gradient) return mean;
  anchor_ = model.x;
  pool.give(frozen_successor(anchor_, std::move(mean)));
  return {};
}

// out <- x - D, or the outer optimizer's step from x. `epoch`: of the last local step. SlowMo
// divides by its rate; where that is 0 there is nothing to divide by, and the step is the plain
// one.
void LocalUpdate::outer_step(at::Tensor& out, const at::Tensor& x, at::Tensor& mean, double epoch) {
  const double lr = lr_.at(epoch), outer_lr = outer_lr_.at(epoch);
  const bool slowmo = settings_.outer == Outer::slowmo;
  if (!outer_ || (slowmo && lr == 0)) return kernels::subtract_into(out, x, mean);
  if (slowmo) mean.div_(lr);
  outer_->step_into(out, x, mean, slowmo ? outer_lr * lr : outer_lr);
}

void LocalUpdate::begin(const ModelState& model) {
  if (settings_.pack == Pack::difference && !anchor_.defined()) anchor_ = model.x;
}

namespace {

FrozenTensor debiased_of(const ModelState& model) {
  return model.w == 1 ? model.x : FrozenTensor::freeze(model.x.read() / model.w);
}

}  // namespace

// g <- g + beta m, or, as Nesterov, g + beta (g + beta m).
void LocalUpdate::add_quasi_global(const ModelState& model, at::Tensor& g) {
  if (!before_.defined()) before_ = debiased_of(model);
  if (momentum_ == 0) return;
  if (nesterov_) g.mul_(1 + momentum_);
  if (quasi_global_.defined()) g.add_(quasi_global_, nesterov_ ? momentum_ * momentum_ : momentum_);
}

void LocalUpdate::learn_from_mixed(const ModelState& model, std::int64_t steps, double epoch,
                                   BufferPool& pool) {
  if (settings_.quasi_global == 0 || !before_.defined()) return;
  const FrozenTensor before = std::exchange(before_, debiased_of(model));
  const double mu = settings_.quasi_global, unit = lr_.at(epoch) * static_cast<double>(steps);
  if (unit == 0) return;  // no step was taken that momentum could continue
  if (!quasi_global_.defined()) quasi_global_ = at::zeros_like(before.read());
  at::Tensor way = pool.take(before);
  kernels::subtract_into(way, before.read(), before_.read());
  quasi_global_.mul_(1 - mu).add_(way, mu / unit);
  pool.give(FrozenTensor::freeze(std::move(way)));
}

void LocalUpdate::restart(const ModelState& model) {
  if (settings_.pack == Pack::difference) anchor_ = model.x;
  if (before_.defined()) before_ = debiased_of(model);
}

void LocalUpdate::step_to_mixed(ModelState& model, double epoch, BufferPool& pool) {
  if (!outer_) return;
  at::Tensor difference = pool.take(model.x);
  if (model.w == 1)
    kernels::subtract_into(difference, anchor_.read(), model.x.read());
  else
    at::sub_out(difference, anchor_.read(), model.x.read(), 1 / model.w);
  update_exchanged(anchor_, pool, [&](at::Tensor& out, const at::Tensor& a) {
    outer_step(out, a, difference, epoch);
  });
  pool.give(FrozenTensor::freeze(std::move(difference)));
  if (model.w == 1) {
    pool.give(std::move(model.x));
    model.x = anchor_;
    return;
  }
  update_frozen(model.x, pool, [&](at::Tensor& out, const at::Tensor&) {
    kernels::scale_into(out, anchor_.read(), model.w);
  });
}

void LocalUpdate::return_to_anchor(ModelState& model, BufferPool& pool) const {
  if (settings_.pack == Pack::difference) pool.give(std::exchange(model.x, anchor_));
}

void LocalUpdate::fields(Archive& a, std::int64_t d, bool begun) {
  if (settings_.pack == Pack::difference && begun) a.needs("anchor");
  a.vector("anchor", anchor_, d);
  if (outer_) a.part("outer", *outer_, d);
  if (settings_.quasi_global > 0) {
    a.vector("quasi_global.before", before_, d);
    a.vector("quasi_global.m", quasi_global_, d);
  }
  a.part("optimizer", *optimizer_, d);
}

}  // namespace grapevine
