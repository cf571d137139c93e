// Adds SPARTA (Beton et al. 2025): after each step all ranks average the same random parameters.
//   x_i <- x_i - gamma u(g_i);  M drawn from (seed, step);  x_i[M] <- 1/P sum_j x_j[M]
// Bytes of a rank and step: (P - 1) 4 p d, and headers: no indices are sent. Staleness: 0.
#include <ATen/ATen.h>
#include <map>
#include "algorithms/archive.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "apps/program.hpp"

namespace gv = grapevine;

struct SpartaSettings : gv::RoleData {
  double fraction = 1;  // p, in (0, 1]
};

class Sparta final : public gv::Role {
 public:
  explicit Sparta(gv::RoleContext c) : c_(std::move(c)), x_(c_.model.x) {}

  void on_start(gv::Env& env) override {
    if (values_[c_.model.step].count(c_.rank) == 0) begin_step(env);
  }
  void on_gradient(gv::Env& env, gv::Gradient gradient) override {
    at::Tensor x = std::move(x_).thaw(), g = std::move(gradient.value).thaw();
    c_.optimizer->step(x, g, c_.model.lr = c_.parts->lr.at(c_.model.epoch));
    x_ = gv::FrozenTensor::freeze(std::move(x));
    const auto own = gv::FrozenTensor::freeze(x_.read().index_select(0, mask()));
    const gv::Extension values{"Sparta", {c_.model.step}, {}, {own}};
    for (gv::Rank peer = 0; peer < c_.ranks; ++peer)
      if (peer != c_.rank) env.send(peer, stamp(), values);
    values_[c_.model.step][c_.rank] = own;
    mix_if_complete(env);
  }
  void on_message(gv::Env& env, gv::Envelope envelope) override {
    const auto& sent = std::get<gv::Extension>(envelope.payload);
    values_[sent.integers.at(0)][envelope.from] = sent.tensors.at(0);  // of this step or the next
    mix_if_complete(env);
  }
  gv::FrozenTensor debiased() const override { return x_; }
  void fields(gv::Archive& a) override {  // the state, listed once
    a.part("optimizer", *c_.optimizer, x_.numel());
    a.keyed("steps", "values.", values_, [](gv::Archive& step, auto& by_rank) {
      step.keyed("ranks", "", by_rank, [](gv::Archive& rank, auto& x) { rank.tensor("x", x); });
    });
  }

 private:
  gv::Stamp stamp() const { return {c_.rank, c_.model.step, c_.model.step}; }
  at::Tensor mask() const {  // [k] int64, the same on every rank
    const double fraction = gv::data_as<SpartaSettings>(c_.parts->plan.settings).fraction;
    const auto k = std::max<std::int64_t>(1, fraction * x_.numel());
    const auto seed = gv::mix_seed(c_.parts->plan.seed, static_cast<std::uint64_t>(c_.model.step));
    return at::randperm(x_.numel(), at::make_generator<at::CPUGeneratorImpl>(seed)).narrow(0, 0, k);
  }
  void begin_step(gv::Env& env) {
    if (c_.model.step >= c_.parts->horizon.steps) return env.finished();
    env.compute(c_.model.step, x_);
  }
  void mix_if_complete(gv::Env& env) {
    if (values_[c_.model.step].size() < static_cast<std::size_t>(c_.ranks)) return;
    const at::Tensor entries = mask();
    at::Tensor x = std::move(x_).thaw(), mean = at::zeros({entries.numel()});
    const auto all = values_.extract(c_.model.step);
    for (const auto& [rank, values] : all.mapped()) mean += values.read();
    x.index_copy_(0, entries, mean /= c_.ranks);
    x_ = gv::FrozenTensor::freeze(std::move(x));
    using Kind = gv::EventKind;
    for (const auto kind : {Kind::committed, Kind::applied, Kind::step_done})
      env.record({kind, -1, stamp(), c_.model.step, 0, 0});
    c_.model.epoch = c_.parts->horizon.epoch_of(++c_.model.step);
    begin_step(env);
  }

  gv::RoleContext c_;
  gv::FrozenTensor& x_;                                              // [d], of the model
  std::map<gv::Step, std::map<gv::Rank, gv::FrozenTensor>> values_;  // that are not in x yet
};

void read_sparta(gv::KeyReader& keys, gv::Plan& plan) {
  auto settings = std::make_shared<SpartaSettings>();
  settings->fraction = keys.number("fraction", 0.005, {0, 1, true}, "p: the part that is averaged");
  plan.settings = settings;
}

int main(int argc, char** argv) {
  static const gv::RoleType sparta{
      "sparta", "all ranks average a random part of their parameters", read_sparta, nullptr,
      [](gv::RoleContext c) { return std::make_unique<Sparta>(std::move(c)); }};
  return gv::run_command_line(
      argc, argv,
      {gv::register_role(sparta),
       gv::register_preset("sparta", "SPARTA", "Beton et al. 2025", "exchange=sparta")});
}
