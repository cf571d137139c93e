#include "algorithms/roles/member_role.hpp"

#include <utility>

#include "algorithms/roles/levels/hierarchy.hpp"
#include "algorithms/roles/levels/nested_role.hpp"
#include "algorithms/roles/make_role.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

Rank position_in(const std::vector<Rank>& members, Rank rank) {
  const auto position = position_of(rank, members);
  GRAPEVINE_CHECK(position, "rank ", rank, " is no member");
  return *position;
}

class MemberRole final : public Role, private NestedRole::Around {
 public:
  MemberRole(std::vector<Rank> members, std::int32_t position, std::unique_ptr<Role> role)
      : nested_(*this, std::move(members), position, std::move(role)) {}

  void on_start(Env& env) override { nested_.on_start(env); }
  void on_gradient_part(Env& env, GradientPart part) override {
    nested_.on_gradient_part(env, std::move(part));
  }
  void on_gradient(Env& env, Gradient gradient) override {
    nested_.on_gradient(env, std::move(gradient));
  }
  void on_message(Env& env, Envelope envelope) override {
    nested_.on_message(env, std::move(envelope));
  }
  void on_timer(Env& env, TimerId id) override { nested_.on_timer(env, id); }
  FrozenTensor debiased() const override { return nested_.role().debiased(); }
  FrozenTensor numerator() const override { return nested_.role().numerator(); }
  void fields(Archive& a) override { nested_.role().fields(a); }
  StateDict measures() const override { return nested_.role().measures(); }
  std::vector<Awaited> waits() const override { return nested_.waits(); }

  std::int64_t close(Env& env) override { return nested_.close(env); }
  void take_back(Env& env, std::int64_t operations) override { nested_.take_back(env, operations); }
  std::vector<std::int64_t> counts() const override { return nested_.role().counts(); }
  void resolve_open(Env& env, const ClosedCounts& counts) override {
    nested_.resolve_open(env, counts);
  }
  void count_as_done(Env& env) override { nested_.count_as_done(env); }
  void shared_fields(Archive& a) override { nested_.role().shared_fields(a); }
  void own_fields(Archive& a) override { nested_.role().own_fields(a); }
  void joiner_fields(Archive& a) override { nested_.role().joiner_fields(a); }
  void flush(Env& env) override { nested_.flush(env); }
  double mean_weight() const override { return nested_.role().mean_weight(); }
  at::Tensor optimizer_state() const override { return nested_.role().optimizer_state(); }
  void take_over(const at::Tensor& optimizer) override { nested_.role().take_over(optimizer); }

 private:
  void compute(Env& env, Step step, FrozenTensor z) override { env.compute(step, std::move(z)); }
  void compute_in_parts(Env& env, Step step, FrozenTensor z, const PartBegins& parts) override {
    env.compute_in_parts(step, std::move(z), parts);
  }
  void finished(Env& env) override { env.finished(); }

  NestedRole nested_;
};

}  // namespace

std::unique_ptr<Role> make_member_role(const std::shared_ptr<const SharedParts>& parts,
                                       TrainingRanks ranks, Rank rank, ModelState& model) {
  if (!ranks.servers.empty()) return make_role_beside_servers(parts, ranks, rank, model);
  if (!ranks.heads.empty()) return std::make_unique<Hierarchy>(parts, ranks, rank, model);
  std::vector<Rank>& members = ranks.members;
  const std::int32_t position = position_in(members, rank);
  auto role = make_flat_role(parts, position, static_cast<std::int32_t>(members.size()), model);
  return std::make_unique<MemberRole>(std::move(members), position, std::move(role));
}

std::unique_ptr<Role> make_common_model(const TrainingRanks& ranks, Rank rank, ModelState& model,
                                        CommonModel::Given given) {
  std::vector<Rank> all = ranks.members;
  all.insert(all.end(), ranks.servers.begin(), ranks.servers.end());
  const std::int32_t position = position_in(all, rank);
  auto role = std::make_unique<CommonModel>(static_cast<std::int32_t>(all.size()),
                                            static_cast<std::int32_t>(ranks.members.size()),
                                            position, model, std::move(given));
  return std::make_unique<MemberRole>(std::move(all), position, std::move(role));
}

}  // namespace grapevine
