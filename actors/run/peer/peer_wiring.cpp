// A change of the wiring, as one rank takes part in it: see WiringChange.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "actors/run/peer.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/roles/make_role.hpp"
#include "algorithms/roles/member_role.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/check.hpp"
#include "messages/text/control_characters.hpp"

namespace grapevine {

Expected<std::shared_ptr<const SharedParts>> PeerState::changed_parts(
    const LiveSettings& settings) const {
  if (settings.empty()) return config_.parts;
  if (!config_.change) return bad_input("this process changes none");
  return config_.change(settings);
}

namespace {

// [k], as Role::optimizer_state() of the rank that trains in the innermost of these roles.
at::Tensor no_optimizer_state(const SharedParts& parts, std::int64_t d) {
  const auto& inside = parts.plan.role->parts_inside;
  if (inside) return no_optimizer_state(*inside(parts).front(), d);
  return at::zeros_like(make_run_optimizer(parts)->state_vector(d));
}

}  // namespace

std::string PeerState::why_not_made(const CheckSettings& asked) const {
  const auto parts = changed_parts(asked.settings);
  if (!parts) return parts.error().message;
  const Plan& plan = (*parts)->plan;
  if (!changes_members(plan)) return kDoesNotCome;
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

Slice PeerState::slice_of_model(std::int32_t servers) const {
  return slice_of(dimension_, servers, config_.rank - first_server());
}

// All that this rank keeps is in its model from here on. Where servers have the model, the epochs
// behind their clock are of their slices.
void PeerState::merge(const InstallView& view) {
  if (std::exchange(view_.merges, true)) return;
  handling_from_ = -1;
  const double epoch = model_.epoch;  // whose models have been sent
  if (view.servers > 0) {
    model_.epoch = view.horizon.first_epoch;
    send_epoch_models();
  }
  role_->flush(*this);
  if (view.servers > 0) model_.epoch = view.horizon.first_epoch;
  if (config_.parts->plan.role->changes_by_mean) model_.epoch = epoch;
  if (is_server()) model_.x = among_zeros(model_.x, slice_of_model(view.servers), dimension_);
  role_ = make_common_model(ranks_of(view), config_.rank, model_,
                            {role_->mean_weight(), role_->optimizer_state()});
}

// A rank that joins gives nothing to the mean, and takes it; it may be there already. False: it
// cannot take part.
bool PeerState::merge_nothing(const InstallView& view, const StateDict& shared) {
  view_.merges = true;
  const auto parts = changed_parts(view.settings);  // of the members, who may have changed it
  if (!parts) {
    fail(parts.error());
    return false;
  }
  const at::Tensor optimizer = no_optimizer_state(**parts, dimension_).to(device());
  role_ = make_common_model(ranks_of(view), config_.rank, model_, {0, optimizer, false});
  const auto done = shared.integer("done");
  if (done.ok() && *done == 1) {
    const auto loaded = role_->load_joined(shared, {});
    if (!loaded) fail(loaded.error());
    return loaded.ok();
  }
  model_.x = placed(FrozenTensor::freeze(at::zeros_like(model_.x.read())));
  return true;
}

// All members begin at the step of the one that was furthest on.
bool PeerState::begin_wiring(const InstallView& view) {
  GRAPEVINE_CHECK(view_.merges || is_server(), "rank ", config_.rank,
                  ": a new wiring without a common model");
  const at::Tensor optimizer = is_server() ? at::Tensor() : role_->optimizer_state();
  scale_model(1 / model_.w);
  view_.merges = false;
  model_.step = reported_ = view.horizon.first_step;
  model_.epoch = view.horizon.first_epoch;
  if (is_server())
    model_.x = part_of(model_.x, slice_of_model(view.servers));
  else if (view.servers > 0)
    send_epoch_models();  // while the model is this rank's
  epochs_sent_ = std::max(epochs_sent_, is_server() ? whole_epochs(model_.epoch) : 0);
  if (!make_member(view, view_.ranks)) return false;
  role_->take_over(optimizer);
  if (serves_with_buffers() && epochs_sent_ > 0) send_model(epochs_sent_ - 1, {});
  return true;
}

// A server of a new wiring has nothing of the one before: it begins with the model of a rank that
// trains.
void PeerState::begin_as_server(const InstallView& view) {
  leave_servers(view);
  view_.joins = true;
  view_.merges = false;
  role_.reset();
  model_ = {};
  model_.x = placed(FrozenTensor::freeze(at::empty({dimension_})));
  view_.install = view;
  view_.awaits_state = true;
  view_.state_at = now();
  take_state_if_complete();
}

// A server that the new wiring has not, until another one has it.
void PeerState::suspend_server() {
  for (Rank rank = 0; rank < config_.ranks; ++rank) forget_messages(rank);
  report_figures();
  flush_trace();
  role_.reset();
  model_ = {};
  started_ = false;
  member_.suspend();
  view_.merges = view_.joins = view_.awaits_state = false;
  view_.early.clear();
}

// The servers of the wiring before take no part from now on. They live, and nobody reports their
// end: a rank that waits for its state leaves them, too, or it would never agree to the next view.
void PeerState::leave_servers(const InstallView& view) {
  for (Rank rank = first_server(); rank < config_.ranks; ++rank) {
    const bool leaves = rank != config_.rank && !serves(rank, view);
    if (!leaves || !membership().is_alive(rank)) continue;
    member_.lose(rank);
    forget_messages(rank);
  }
}

}  // namespace grapevine
