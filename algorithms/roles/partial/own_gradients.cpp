#include "algorithms/roles/partial/own_gradients.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "algorithms/kernels/kernels.hpp"

namespace grapevine {

void OwnGradients::begin(Version version, const FrozenTensor& x) {
  if (!steps_.empty()) return;
  begun_at_ = version;
  start_ = x;
}

void OwnGradients::add(Step step, at::Tensor gradient) {
  waiting_.push_back({step, begun_at_});
  sum(std::move(gradient));
}

double OwnGradients::weigh(std::int64_t full) {
  const std::int64_t before = std::exchange(full_, full);
  if (before <= 0 || full <= 0 || before == full) return 1;
  const double by = static_cast<double>(before) / static_cast<double>(full);
  if (sum_.defined()) kernels::scale(sum_, by);
  return by;
}

void OwnGradients::add_difference(const FrozenTensor& x, std::int64_t full, BufferPool& pool) {
  weigh(full);
  ++differences_;
  at::Tensor way = pool.take(x);
  kernels::subtract_into(way, start_.read(), x.read());
  const auto taken = static_cast<std::int64_t>(steps_.size());
  if (taken < full) kernels::scale(way, static_cast<double>(taken) / static_cast<double>(full));
  const Gradients done = std::exchange(steps_, {});
  waiting_.insert(waiting_.end(), done.begin(), done.end());
  at::Tensor free = sum(std::move(way));
  if (free.defined()) pool.give(FrozenTensor::freeze(std::move(free)));
}

// Returns the memory of the vector where that is free now.
at::Tensor OwnGradients::sum(at::Tensor vector) {
  if (sum_.defined()) {
    kernels::fold(sum_, vector);
    return vector;
  }
  sum_ = std::move(vector);
  return {};
}

OwnGradients::Contribution OwnGradients::contribute() {
  at::Tensor sum = std::exchange(sum_, at::Tensor());
  contributed_ = std::exchange(waiting_, {});
  contributed_differences_ = std::exchange(differences_, 0);
  return {std::move(sum), static_cast<std::int64_t>(contributed_.size())};
}

void OwnGradients::take_back(at::Tensor sum) {
  if (sum.defined() && sum_.defined())
    kernels::fold(sum_, sum);
  else if (sum.defined())
    sum_ = std::move(sum);
  waiting_.insert(waiting_.begin(), contributed_.begin(), contributed_.end());
  differences_ += std::exchange(contributed_differences_, 0);
  contributed_.clear();
}

void OwnGradients::commit(Env& env, const Stamp& stamp, Step step, const ModelState& model,
                          std::vector<Rank> contributors) {
  const Version round = stamp.version;
  env.record({EventKind::reduced, -1, stamp, step, 0, 0, round, std::move(contributors)});
  count(env, stamp, step, model);
  const Version newest = contributed_.empty() ? round + 1 : contributed_.back().version;
  env.record({EventKind::contributed, -1, stamp, step, round - newest, 0, round});
  contributed_.clear();
  contributed_differences_ = 0;
}

void OwnGradients::count(Env& env, const Stamp& stamp, Step step, const ModelState& model) {
  const Version round = stamp.version;
  for (const Gradient& gradient : contributed_) {
    Stamp own = stamp;
    own.step = gradient.step;
    own.version = gradient.version;
    env.record({EventKind::committed, own.origin, own, step, 0, 0, round});
    env.record({EventKind::applied, -1, own, step, round - own.version, model.x.nbytes(), round});
  }
}

// Into a model of this rank alone a difference goes as a whole, whatever its weight in a sum of
// all: with one length of theirs exactly, else as on average.
void OwnGradients::unweigh() {
  const auto gradients = static_cast<std::int64_t>(waiting_.size());
  const bool weighs = full_ > 0 && sum_.defined() && differences_ > 0;
  if (weighs && full_ * differences_ != gradients)
    kernels::scale(sum_,
                   static_cast<double>(full_ * differences_) / static_cast<double>(gradients));
  differences_ = 0;
}

at::Tensor OwnGradients::flush(Env& env, const Stamp& stamp, Step step, const ModelState& model) {
  unweigh();
  if (!steps_.empty()) {
    at::Tensor way = at::empty_like(model.x.read());
    kernels::subtract_into(way, start_.read(), model.x.read());
    waiting_.insert(waiting_.end(), steps_.begin(), steps_.end());
    steps_.clear();
    sum(std::move(way));
  }
  contributed_ = std::exchange(waiting_, {});
  count(env, stamp, step, model);
  contributed_.clear();
  return std::exchange(sum_, at::Tensor());
}

void OwnGradients::fields(Archive& a, std::int64_t d) {
  a.whole("computing_at", begun_at_);
  a.vector("start", start_, d);
  a.vector("pending_sum", sum_, d);
  list_fields(a, "steps", steps_);
  list_fields(a, "pending", waiting_);
  list_fields(a, "contributed", contributed_);
  // Of differences alone; an older checkpoint does not say how many these are: they stay as they
  // are.
  if (!a.has("full", full_ > 0 || differences_ + contributed_differences_ > 0)) return;
  a.whole("full", full_);
  a.whole("differences", differences_, 0, std::numeric_limits<std::int64_t>::max() / 4);
  a.whole("contributed_differences", contributed_differences_, 0,
          std::numeric_limits<std::int64_t>::max() / 4);
}

void OwnGradients::list_fields(Archive& a, const std::string& name, Gradients& gradients) {
  a.items(name, gradients, [](Archive& inner, Gradient& gradient) {
    inner.whole("step", gradient.step);
    inner.whole("version", gradient.version);
  });
}

}  // namespace grapevine
