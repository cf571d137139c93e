// Changes of members: the messages of the supervisor's ViewChange.
#include "actors/run/supervisor.hpp"
#include "actors/run/whole_epochs.hpp"

namespace grapevine {
namespace {

constexpr Duration kAskInterval = std::chrono::milliseconds(2);

}  // namespace

// The remaining ranks continue among themselves. Where all have taken their last step there is
// nothing to continue.
void SupervisorState::begin_view_change() {
  if (!config_.changes_members || stage_ != Stage::running) return;
  view_.begin(members_.remaining_ranks());
  crew_.send_to_ranks(HoldForView{view_.number(), view_.members()});
  ask_for_traffic();
}

void SupervisorState::ask_for_traffic() {
  if (stage_ == Stage::running && view_.draining())
    crew_.send_to_ranks(AskTraffic{view_.number(), view_.begin_round()});
}

void SupervisorState::on_traffic(const Traffic& traffic) {
  continue_view_change(view_.add(traffic));
}

void SupervisorState::on_view_closed(const ViewClosed& closed) {
  continue_view_change(view_.add(closed));
}

void SupervisorState::continue_view_change(ViewChange::Next next) {
  if (stage_ != Stage::running) return;
  switch (next) {
    case ViewChange::Next::wait:
      return;
    case ViewChange::Next::ask_later:
      return self_->delayed_send(SupervisorActor{self_}, kAskInterval, AskTrafficAgain{});
    case ViewChange::Next::close:
      return crew_.send_to_ranks(CloseView{view_.number()});
    case ViewChange::Next::install:
      return install_view();
  }
}

void SupervisorState::install_view() {
  InstallView view = view_.conclude(config_.replicates);
  view.last_cut = checkpoints_.newest();
  last_news_ = now();
  progress_.continue_all();
  const std::int32_t before = view_workers_;
  view_workers_ = static_cast<std::int32_t>(view.members.size());
  config_.horizon = config_.horizon.among(before, view_workers_, view.first_step, view.first_epoch);
  const double epochs = config_.horizon.epoch_of(config_.horizon.steps);
  if (crew_.evaluates() && evaluations_due_ > 0)
    evaluations_due_ += whole_epochs(epochs) - whole_epochs(config_.total_epochs);
  config_.total_epochs = epochs;
  crew_.report_members(view.members);
  crew_.send_to_ranks(view);
}

}  // namespace grapevine
