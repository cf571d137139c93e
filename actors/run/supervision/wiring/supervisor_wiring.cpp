// A change of the wiring: the messages of the supervisor's WiringChange.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/run/supervisor.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/plan.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// Ranks answer between two messages. One that does not is stopped, or computes on this thread.
constexpr Duration kAnswerTime = std::chrono::milliseconds(500);
// From one attempt of a planned change to the next.
constexpr Duration kTryAgain = std::chrono::seconds(2);

}  // namespace

// A process may have read its options from a checkpoint of any time since the start. Other settings
// than those of the wiring are kept with each change: of them any value fits, also an earlier one.
void SupervisorState::take_settings() {
  LiveSettings before = wiring_settings(settings_);
  const bool is_new =
      std::find(earlier_wirings_.begin(), earlier_wirings_.end(), before) == earlier_wirings_.end();
  if (is_new && !before.empty() && before != wiring_settings(wiring_.settings()))
    earlier_wirings_.push_back(std::move(before));
  settings_ = wiring_.settings();
  newest_ = wiring_.changed();
}

// All ranks have agreed to them.
void SupervisorState::begin_numbers() {
  take_settings();
  wiring_.cancel();  // the wiring stays
  begin_view_change();
}

// One change at a time. Those that do not fit any more are left out; where ranks did not answer, or
// one was lost, the change is tried again.
void SupervisorState::follow_schedule() {
  if (scheduled_ == config_.schedule.size() || stage_ != Stage::running || stopping_ ||
      returning_ || is_changing() || now() < schedule_after_ ||
      progress_.finished() != members_.lost())
    return;
  const ScheduledChange& next = config_.schedule[scheduled_];
  const auto epochs = progress_.slowest_epochs(members_);
  if (!epochs || *epochs < next.epoch) return;
  if (const std::string why = why_not_set(next.changed); !why.empty()) {
    ++scheduled_;
    return config_.observer->on_warning("--schedule: " + settings_text(next.changed) +
                                        " is left out: " + why);
  }
  begin_asking(next.changed);
}

// A change takes place among ranks that all train: once one has taken its last step, it is too
// late.
void SupervisorState::report_missed_schedule() {
  for (; scheduled_ < config_.schedule.size(); ++scheduled_) {
    const ScheduledChange& missed = config_.schedule[scheduled_];
    config_.observer->on_warning(fmt::format(
        "--schedule: {} of epoch {} is left out: it had not taken place when a rank took its last "
        "step",
        settings_text(missed.changed), number_text(missed.epoch)));
  }
}

void SupervisorState::begin_asking(const LiveSettings& changed) {
  const std::vector<Rank> ranks = members_.remaining_ranks();
  wiring_.ask(with_settings(settings_, changed), changed, {ranks.begin(), ranks.end()},
              config_.models.node_size > 1);
  crew_.send_to_ranks(CheckSettings{wiring_.number(), wiring_.settings()});
  self_->delayed_send(SupervisorActor{self_}, kAnswerTime, SettingsTimeOver{wiring_.number()});
}

// A planned change has no client to answer: a refusal is a warning.
void SupervisorState::answer_wiring(ControlReply reply) {
  const bool asked = asks_for_wiring_.pending();
  if (asked) asks_for_wiring_.deliver(reply);
  asks_for_wiring_ = {};
  if (asked) return;
  if (!reply.refused) {
    ++scheduled_;
    return;
  }
  schedule_after_ = now() + kTryAgain;
  config_.observer->on_warning("--schedule: " + reply.text);
}

// The run is as it was.
void SupervisorState::refuse_wiring(const std::string& why) {
  wiring_.cancel();
  answer_wiring({true, "set: " + why});
  end_change();
}

// Continues with the requests that came meanwhile.
void SupervisorState::end_change() {
  if (is_changing() || stage_ != Stage::running) return;
  if (std::exchange(stop_early_, false)) return on_stop_requested();
  drain_if_finished();
  resume_checkpoint();
}

void SupervisorState::on_settings_checked(const SettingsChecked& checked) {
  switch (wiring_.add(checked)) {
    case WiringChange::Next::wait:
      return;
    case WiringChange::Next::refuse:
      if (!asks_for_wiring_.pending()) ++scheduled_;  // it would refuse again
      return refuse_wiring(fmt::format("rank {} refuses: {}", checked.rank, wiring_.why()));
    case WiringChange::Next::begin:
      if (stage_ != Stage::running || stopping_) return refuse_wiring("the run is ending");
      answer_wiring({false, settings_text(wiring_.changed()) + " from the next view on"});
      if (!changes_wiring(wiring_.changed())) return begin_numbers();
      return begin_view_change();
  }
}

void SupervisorState::on_settings_time_over(SettingsTimeOver over) {
  if (!wiring_.asks() || over.number != wiring_.number()) return;
  refuse_wiring(fmt::format("rank {} does not answer: nothing has changed, ask again",
                            *wiring_.missing().begin()));
}

void SupervisorState::on_model_shared(const ModelShared& shared) {
  last_news_ = now();
  if (!view_.in_progress() && wiring_.add(shared, view_.number())) begin_view_change();
}

// The members may have become too few for the new wiring: the present one then takes its place.
void SupervisorState::install_wiring(InstallView& view) {
  view.kind = wiring_.install(!view.behind.empty() || !view_.new_servers().empty(), view.members);
  // All begin together, with as much left as the clock of the roles before says; and a rank may
  // have counted gradients as its model took them.
  if (view.kind != ViewKind::members) {
    Horizon& horizon = view.horizon;
    if (horizon.by_samples)
      horizon = horizon.from(horizon.first_step, view_.epochs_done());
    else
      horizon.steps = config_.horizon.from(horizon.first_step, horizon.first_epoch).steps;
  }
  if (view.kind == ViewKind::common_model) config_.models = ViewChange::Models::common();
  if (view.kind != ViewKind::new_wiring) return;
  const std::string why = why_not_fit(wiring_.settings());
  if (why.empty()) {
    take_settings();
  } else if (wiring_.settings() != settings_) {
    config_.observer->on_warning("the change of the wiring is taken back: " + why);
  }
  const auto parts = config_.change(settings_);
  if (!parts) return fail(parts.error());
  config_.models = ViewChange::Models::of((*parts)->plan);
  take_nodes(view);
  take_servers((*parts)->plan.servers);
}

// Of the wiring whose view is to come. Those that do not exist yet join it, as ranks do.
std::vector<Rank> SupervisorState::provide_servers() {
  if (!wiring_.begins()) return {};
  const auto parts = config_.change(wiring_.settings());
  if (!parts) return {};  // the change is taken back
  RunMembers to_come = members_;
  to_come.set_servers((*parts)->plan.servers);
  for (auto rank = static_cast<Rank>(crew_.peers().size()); rank < to_come.ranks(); ++rank)
    crew_.add_server(config_.spawn_server(rank, SupervisorActor{self_}));
  return to_come.server_ranks();
}

// Sets the heads of the nodes of the new wiring.
void SupervisorState::take_nodes(InstallView& view) {
  if (config_.models.node_size > 1)
    view.heads = first_of_each_node(view.members, config_.models.node_size);
  view_.set_heads(view.heads);
}

// Ranks behind them have no role from now on.
void SupervisorState::take_servers(std::int32_t servers) {
  const std::vector<Rank> before = members_.server_ranks();
  members_.set_servers(servers);
  const std::vector<Rank> after = members_.server_ranks();
  view_.set_servers(after);
  for (const Rank rank : before) waits_.remove(rank);
  for (const Rank rank : after) waits_.bring_back(rank, members_.process_of(rank), now());
}

}  // namespace grapevine
