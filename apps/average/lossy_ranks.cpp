#include "apps/average/lossy_ranks.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <deque>
#include <map>
#include <vector>

#include "algorithms/wiring/plan.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

struct LossySettings final : RoleData {
  std::vector<bool> active;  // bilateral: by rank, whether it asks
};

bool everyone(Rank) { return true; }

// What the roles have in common: a round for every gradient, nothing to wait for.
class LossyRank : public Role {
 public:
  explicit LossyRank(RoleContext context)
      : parts_(std::move(context.parts)), rank_(context.rank), model_(context.model) {}

  void on_start(Env& env) override { env.compute(model_.step, model_.x); }
  void on_gradient(Env& env, Gradient) override {
    ++round_;
    ++model_.step;
    begin_round(env);
    env.compute(model_.step, model_.x);
  }
  FrozenTensor debiased() const override { return FrozenTensor::freeze(x() / model_.w); }
  void fields(Archive&) override {}  // averaging over lossy wires has no checkpoints

 protected:
  virtual void begin_round(Env& env) = 0;

  const GossipGraph& graph() const { return *parts_->graph; }
  const LossySettings& settings() const { return data_as<LossySettings>(parts_->plan.settings); }
  const at::Tensor& x() const { return model_.x.read(); }
  void set_x(at::Tensor x) { model_.x = FrozenTensor::freeze(std::move(x)); }
  Stamp stamp() const {
    Stamp stamp;
    stamp.origin = rank_;
    stamp.step = model_.step - 1;
    stamp.version = model_.step;
    return stamp;
  }

  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  ModelState& model_;
  std::int64_t round_ = -1;  // the one that was begun last
};

class LossyPushSum final : public LossyRank {
 public:
  using LossyRank::LossyRank;

  void on_message(Env&, Envelope envelope) override {
    const auto& share = std::get<Share>(envelope.payload);
    set_x(x() + share.x.read());
    model_.w += share.w;
  }

 private:
  void begin_round(Env& env) override {
    const Shares shares = graph().even_shares(round_, rank_, everyone);
    for (const Shares::Link& link : shares.links)
      env.send(link.peer, stamp(),
               Share{round_, model_.w * link.weight, FrozenTensor::freeze(x() * link.weight)});
    set_x(x() * shares.kept);
    model_.w *= shares.kept;
  }
};

class LossySymmetric final : public LossyRank {
 public:
  using LossyRank::LossyRank;

  void on_message(Env&, Envelope envelope) override {
    const auto& share = std::get<Share>(envelope.payload);
    set_x(x() + (share.x.read() - start_) * weights_.at(envelope.from));
  }

 private:
  void begin_round(Env& env) override {
    start_ = x().clone();
    weights_.clear();
    for (const auto& link : graph().symmetric_shares(round_, rank_, everyone).links) {
      weights_[link.peer] = link.weight;
      env.send(link.peer, stamp(), Share{round_, model_.w, model_.x});
    }
  }

  at::Tensor start_;                // x as the round began
  std::map<Rank, double> weights_;  // of the round
};

class LossyBilateral final : public LossyRank {
 public:
  using LossyRank::LossyRank;

  void on_message(Env& env, Envelope envelope) override {
    const auto& swap = std::get<Swap>(envelope.payload);
    if (!swap.reply) return answer(env, envelope.from, swap);
    Asked& asked = asked_[envelope.from];
    const at::Tensor& taken = swap.x.read();
    set_x(x() - (asked.taken.defined() ? taken - asked.taken : taken));
    asked = {taken, swap.exchange};
    ask_next(env);
  }

 private:
  struct Asked {
    at::Tensor taken;  // by the passive end, as far as known here
    std::int64_t exchange = -1;
  };
  struct Served {
    at::Tensor taken;    // from the active end, ever
    at::Tensor unknown;  // the part that no acknowledged reply contained
    std::int64_t exchange = -1;
  };

  void begin_round(Env& env) override {
    if (!settings().active[static_cast<std::size_t>(rank_)]) return;
    const std::vector<Rank> near = graph().neighbors(round_, rank_);
    partners_.assign(near.begin(), near.end());
    ask_next(env);
  }

  void ask_next(Env& env) {
    if (partners_.empty()) return;
    const Rank to = partners_.front();
    partners_.pop_front();
    const at::Tensor acknowledged = at::tensor({asked_[to].exchange}, at::kLong);
    env.send(to, stamp(), Swap{round_, false, model_.x, FrozenTensor::copy_of(acknowledged)});
  }

  // Moves to the mean at once; the reply makes the active end follow.
  void answer(Env& env, Rank active, const Swap& request) {
    Served& served = served_[active];
    if (!served.taken.defined()) served = {at::zeros_like(x()), at::zeros_like(x()), -1};
    if (request.steps.read().item<std::int64_t>() == served.exchange) served.unknown.zero_();
    const at::Tensor half = (request.x.read() - served.unknown - x()) * 0.5;
    set_x(x() + half);
    served.taken += half;
    served.unknown += half;
    served.exchange = request.exchange;
    env.send(active, stamp(),
             Swap{request.exchange, true, FrozenTensor::copy_of(served.taken), {}});
  }

  std::deque<Rank> partners_;  // to ask in this round
  std::map<Rank, Asked> asked_;
  std::map<Rank, Served> served_;
};

template <class T>
RoleType lossy_role(const std::string& method) {
  RoleType role;
  role.name = "lossy " + method;
  role.make = [](RoleContext context) -> std::unique_ptr<Role> {
    return std::make_unique<T>(std::move(context));
  };
  return role;
}

const RoleType& role_of(const std::string& method) {
  static const RoleType push_sum = lossy_role<LossyPushSum>("push-sum"),
                        symmetric = lossy_role<LossySymmetric>("symmetric"),
                        bilateral = lossy_role<LossyBilateral>("bilateral");
  return method == "push-sum" ? push_sum : method == "symmetric" ? symmetric : bilateral;
}

}  // namespace

Expected<std::shared_ptr<const SharedParts>> make_lossy_parts(const std::string& method,
                                                              const GraphSettings& graph,
                                                              std::int32_t ranks) {
  auto made = GossipGraph::make(graph.topology, graph.peers, ranks, 1);
  if (!made) return made.error();
  if (method == "push-sum")
    if (auto paths = (*made)->check_strongly_connected(); !paths) return paths.error();
  auto settings = std::make_shared<LossySettings>();
  if (method == "bilateral") {
    auto sides = (*made)->bipartition();
    if (!sides) return sides.error();
    settings->active = std::move(*sides);
  }
  Plan plan;
  plan.role = &role_of(method);
  plan.graph = graph;
  plan.settings = std::move(settings);
  const LrSchedule lr = *LrSchedule::make({});
  const OptimizerConfig optimizer;
  return std::make_shared<const SharedParts>(SharedParts{
      plan, Horizon{}, lr, optimizer, ExchangeSteps({}, Horizon{}, lr), *made, nullptr, {}});
}

// 53 random bits, so that the same seed loses the same messages with every standard library.
bool LossyWire::carries() { return std::ldexp(static_cast<double>(rng_() >> 11), -53) >= drop_; }

}  // namespace grapevine
