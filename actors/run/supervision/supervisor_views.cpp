// Changes of members: the messages of the supervisor's ViewChange.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "actors/record/resume_hint.hpp"
#include "actors/run/supervisor.hpp"
#include "actors/run/whole_epochs.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace {

// Twice as long each time: messages may have a long way, and each question goes to all ranks.
constexpr Duration kFirstInterval = std::chrono::microseconds(250);
constexpr std::int64_t kMostDoublings = 7;

Duration interval_after(std::int64_t rounds) {
  return kFirstInterval * (std::int64_t{1} << std::min(rounds - 1, kMostDoublings));
}

}  // namespace

// Why the others cannot continue among themselves, as far as is known before they have closed their
// view; empty: they can. A rank that receives the state of training may have it already.
std::string SupervisorState::why_no_view_without(const std::vector<Rank>& ranks) const {
  if (!changes_views()) return "";
  if (!view_.has_donor(ranks)) return "no other rank is known to have the whole state of training";
  if (!config_.change) return "";
  const auto parts = config_.change(settings_);
  if (!parts) return parts.error().message;
  const std::vector<Rank> all = members_.remaining_ranks_that_train();
  std::vector<Rank> others;
  std::set_difference(all.begin(), all.end(), ranks.begin(), ranks.end(),
                      std::back_inserter(others));
  const Horizon& now = config_.horizon;
  const auto before = static_cast<std::int32_t>(all.size());
  const auto after = static_cast<std::int32_t>(others.size());
  const std::string why = why_not_among(**parts, std::move(others),
                                        now.among(before, after, now.first_step, now.first_epoch));
  return why.empty() ? "" : "the other ranks do not continue by themselves: " + why;
}

// Members of a checkpoint's view that had been lost there come anew in the first change.
std::vector<Rank> SupervisorState::arriving_ranks() const {
  if (!view_.in_progress()) return {};
  std::vector<Rank> ranks = view_.arriving();
  const std::vector<Rank> all = view_.participants();
  for (const Rank rank : config_.absent) {
    const bool comes =
        view_.installed() == 0 && std::find(all.begin(), all.end(), rank) != all.end();
    if (comes && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// The remaining ranks continue among themselves. Where all have taken their last step there is
// nothing to continue. A gradient that is computed while nobody is lost has its exchange, and is
// not computed again; after a loss its exchange could not end.
void SupervisorState::begin_view_change() {
  if (!changes_views()) return;
  interrupt_checkpoint();
  if (config_.models.changes_by_mean && !wiring_.in_progress()) wiring_.begin(settings_, newest_);
  view_.begin(members_.remaining_ranks_that_train(), provide_servers());
  change_began_ = change_watched_ = now();
  // Nor before the first step, as where a resumed run has more ranks: the others have begun theirs
  // by chance, or not.
  const bool gradients_end = !view_.loses_members() && progress_.has_steps();
  crew_.send_to_ranks(
      HoldForView{view_.number(), view_.participants(), arriving_ranks(), gradients_end});
  ask_for_traffic();
}

void SupervisorState::ask_for_traffic() {
  if (stage_ == Stage::running && view_.draining())
    crew_.send_to_ranks(AskTraffic{view_.number(), view_.begin_round()});
}

void SupervisorState::on_traffic(const Traffic& traffic) {
  hear(traffic.rank);
  continue_view_change(view_.add(traffic));
}

void SupervisorState::on_view_closed(const ViewClosed& closed) {
  hear(closed.rank);
  continue_view_change(view_.add(closed));
}

void SupervisorState::continue_view_change(ViewChange::Next next) {
  if (stage_ != Stage::running) return;
  switch (next) {
    case ViewChange::Next::wait:
      return;
    case ViewChange::Next::ask_later:
      return self_->delayed_send(SupervisorActor{self_}, interval_after(view_.rounds()),
                                 AskTrafficAgain{});
    case ViewChange::Next::ask_again:
      return ask_for_traffic();
    case ViewChange::Next::close:
      change_began_ = now();  // the drain may have waited for others
      return crew_.send_to_ranks(CloseView{view_.number()});
    case ViewChange::Next::install:
      return install_view();
  }
}

void SupervisorState::install_view() {
  if (!view_.has_donor())
    return fail({Errc::peer_down,
                 config_.models.node_size > 1
                     ? "every node has lost the rank that exchanges for it, and no other has the "
                       "whole state of training"
                     : "all ranks with a state of training are lost, and the others were joining"});
  // The model of a run with servers is theirs, at their clock.
  const double least_epoch = wiring_.in_progress() ? view_.servers_epoch() : 0;
  const ClosedCounts counts = view_.closed_counts(config_.models);
  InstallView view =
      view_.conclude(config_.models, config_.horizon, least_epoch, progress_.steps());
  batches_so_far_ = batches_with_earlier();
  install_wiring(view);
  view.settings = settings_;
  view.servers = members_.servers();
  const bool anew = view.kind == ViewKind::new_wiring;
  view.passes = wiring_.in_progress() && view.kind == ViewKind::members;
  view.new_servers = anew ? members_.server_ranks() : view_.new_servers();
  view.last_cut = checkpoints_.newest();
  view.elapsed_ns = (config_.elapsed_before + now()).count();
  last_news_ = now();
  waits_.restart(last_news_);
  progress_.continue_all();
  config_.horizon = view.horizon;
  const double epochs = config_.horizon.epoch_of(config_.horizon.steps);
  if (crew_.evaluates() && !stopping_)
    evaluations_due_ += whole_epochs(epochs) - whole_epochs(config_.total_epochs);
  config_.total_epochs = epochs;
  checkpoints_.set_total(epochs);
  crew_.report_members({view.members, view.joining, whole_epochs(view.horizon.first_epoch)});
  for (const ViewCounts& part : split_counts(view.view, counts, config_.counts_per_message))
    crew_.send_to_ranks(part);
  crew_.send_to_ranks(view);
  if (!newest_.empty() && !wiring_.in_progress()) report_change(std::exchange(newest_, {}));
  // A rank had to take the model of another first.
  if (view.passes) return begin_view_change();
  end_change();
}

void SupervisorState::report_change(const LiveSettings& changed) {
  if (crew_.traces()) crew_.trace(SettingsChange{trace_now(), changed});
  config_.observer->on_changed(changed);
}

// ---- a process that returns, or comes ----

// One process returns at a time, and only once the members have agreed on its loss: every rank has
// then received the report of that loss, and the next report is of the new life.
Place SupervisorState::on_ask_place(AskPlace ask) {
  Place place;
  place.settings = settings_;  // a process with other options need not wait for its place
  place.earlier = earlier_wirings_;
  const auto refuse = [&place](bool later, const char* reason) {
    place.later = later;
    place.reason = reason;
    return place;
  };
  const bool alone = ask.process == 0 && ask.rank >= 0 && ask.rank < members_.workers();
  const bool known = alone || (ask.process > 0 && ask.process < members_.processes());
  if (!known) return refuse(false, "is not of this run");
  if (const char* why = why_joins_are_refused()) return refuse(false, why);
  const bool lost = alone ? members_.is_lost(ask.rank) : members_.is_process_lost(ask.process);
  if (!lost) return refuse(true, kPlaceTaken);
  // Asked again, it has not received the answer.
  const bool again =
      returning_ && returning_->process == ask.process && returning_->rank == ask.rank;
  if ((returning_ && !again) || is_changing())
    return refuse(true, "has to wait for another change");
  if (!again || returning_->agent != ask.agent) granted_at_ = now();
  returning_ = ask;
  place.granted = true;
  if (!alone) expect_process(ask, place);
  return place;
}

// A phrase after the name of a process; null: processes may join.
const char* SupervisorState::why_joins_are_refused() const {
  if (stage_ != Stage::running || stopping_) return "is too late: the run is ending";
  if (config_.changes_members && config_.tolerates_worker_loss) return nullptr;
  return "cannot join: this wiring does not continue without lost ranks";
}

Vacancy SupervisorState::on_ask_vacancy() const {
  Vacancy vacancy;
  vacancy.settings = settings_;
  vacancy.earlier = earlier_wirings_;
  if (const char* why = why_joins_are_refused()) {
    vacancy.reason = why;
    return vacancy;
  }
  for (const std::int32_t process : members_.lost_processes())
    if (!returning_ || returning_->process != process) vacancy.processes.push_back(process);
  vacancy.later = vacancy.processes.empty();
  if (vacancy.later)
    vacancy.reason = "finds no place: no process of the job is lost, and no place is vacant";
  return vacancy;
}

void SupervisorState::expect_process(const AskPlace& granted, Place& place) {
  const ExpectProcess expected{granted.process, granted.host, granted.address};
  if (config_.expect_process) config_.expect_process(expected);
  crew_.send_to(members_.remaining_processes(), expected);
  for (const std::int32_t other : members_.lost_processes())
    if (other != granted.process) place.absent.push_back(other);
}

void SupervisorState::on_process_returned(ProcessReturned& returned) {
  const bool expected =
      returning_ && returning_->process == returned.process && returning_->rank == returned.rank;
  if (!expected) return;
  returning_.reset();
  if (returned.peers.empty()) return drop_return(returned.process);
  if (stage_ != Stage::running || stopping_) return dismiss_late(returned);
  const bool joins = returned.rank >= 0 ? members_.is_vacant(returned.rank)
                                        : members_.has_vacant(returned.process);
  const std::vector<Rank> ranks = returned.rank >= 0 ? members_.bring_back_rank(returned.rank)
                                                     : members_.bring_back(returned.process);
  crew_.replace(returned.process, std::move(returned.agent), ranks, std::move(returned.peers));
  for (const Rank rank : ranks) {
    progress_.bring_back(rank, joins);
    drained_.erase(rank);
    waits_.bring_back(rank, members_.process_of(rank), now());
    hear(rank);
    joins ? config_.observer->on_rank_joined(rank) : config_.observer->on_rank_returned(rank);
  }
  if (returned.process > 0) report_joined(returned.process, joins);
  begin_view_change();
}

// It has failed, and others may come: no transport keeps a link to it.
void SupervisorState::drop_return(std::int32_t process) {
  if (process > 0) end_links_to(process);
}

// It receives the end that all others receive. Its ranks have not begun, so that none of their
// records is awaited.
void SupervisorState::dismiss_late(const ProcessReturned& late) {
  RunEnded end{result_.error.has_value(), result_.error.value_or(Error{}), result_.interrupted,
               result_.checkpoint};
  end.leaves = true;
  if (late.agent) self_->send(late.agent, std::move(end));
}

// What the other processes know already. `joins`: in a vacant place.
void SupervisorState::report_joined(std::int32_t process, bool joins) {
  config_.observer->on_warning(
      fmt::format("process {} has joined{}", process, joins ? "" : " again"));
  if (!result_.checkpoint.empty())
    self_->send(crew_.agent_of(process), ResumeFrom{run_folder_of(result_.checkpoint)});
  if (crew_.traces()) compare_clock_of(process);
}

}  // namespace grapevine
