// A change of the wiring, as one rank takes part in it: see WiringChange.
#include "actors/run/peer.hpp"
#include "algorithms/roles/member_role.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/check.hpp"

namespace grapevine {

Expected<std::shared_ptr<const SharedParts>> PeerState::changed_parts(
    const LiveSettings& settings) const {
  if (settings.empty()) return config_.parts;
  if (!config_.change) return bad_input("this process changes none");
  return config_.change(settings);
}

std::string PeerState::why_not_made(const CheckSettings& asked) const {
  const auto parts = changed_parts(asked.settings);
  if (!parts) return parts.error().message;
  const Plan& plan = (*parts)->plan;
  if (!changes_wiring(plan)) return kDoesNotCome;
  if (!device().is_cpu() && !plan.role->any_device(plan))
    return "role '" + plan.role->name +
           "' keeps its vectors in the host's memory, and the ranks of this run keep their models "
           "on devices: begin another run with --peers host";
  return "";
}

void PeerState::on_check_settings(const CheckSettings& asked) {
  self_->send(config_.supervisor,
              SettingsChecked{asked.number, config_.rank, one_line(why_not_made(asked))});
}

// All that this rank keeps is in its model from here on.
void PeerState::merge(const InstallView& view) {
  if (std::exchange(view_.merges, true)) return;
  handling_from_ = -1;
  role_->flush(*this);
  role_ = make_common_model(view.members, config_.rank, model_, role_->optimizer_state());
}

// All members begin at the step of the one that was furthest on.
bool PeerState::begin_wiring(const InstallView& view) {
  GRAPEVINE_CHECK(view_.merges, "rank ", config_.rank, ": a new wiring without a common model");
  const at::Tensor optimizer = role_->optimizer_state();
  scale_model(1 / model_.w);
  view_.merges = false;
  model_.step = reported_ = view.horizon.first_step;
  model_.epoch = view.horizon.first_epoch;
  if (!make_member(view)) return false;
  role_->take_over(optimizer);
  return true;
}

}  // namespace grapevine
