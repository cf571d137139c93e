// Lost links, ranks and processes: the messages of the supervisor's RunMembers and LinkSuspects.
#include <fmt/format.h>

#include <algorithm>

#include "actors/run/supervisor.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr Duration kAnswerTimeout = std::chrono::seconds(2);  // of a process that may be gone

constexpr char kProcessEnded[] = "it ended or cannot be reached any more; its own output says why";

}  // namespace

// An actor of this process, or another process, has ended.
void SupervisorState::on_down(const caf::down_msg& down) {
  if (const std::int32_t process = crew_.process_behind(down.source); process > 0)
    return on_process_down(process);
  if (stage_ == Stage::closing || crew_.is_former(down.source)) return;
  if (const Rank rank = crew_.rank_behind(down.source); rank >= 0)
    return on_peer_down(rank, down.reason);
  fail({Errc::failed, "an actor ended unexpectedly: " + caf::to_string(down.reason)});
}

void SupervisorState::on_peer_down(Rank rank, const caf::error& reason) {
  const std::int32_t process = members_.process_of(rank);
  if (members_.is_process_lost(process)) return;  // the transports have reported it
  const std::string why =
      process == 0 ? "its actor ended: " + caf::to_string(reason) : std::string(kProcessEnded);
  if (!on_rank_down(rank, why)) return;
  crew_.send_to_ranks(PeerLost{rank, ""});
  begin_view_change();
}

void SupervisorState::on_process_down(std::int32_t process) {
  // A process that has announced its end ended as it should.
  if (stage_ == Stage::closing && !closing_.close_process(process)) return;
  const bool known = members_.is_process_lost(process);
  report_process_lost(process);
  if (stage_ == Stage::closing) {
    if (result_.error) note_gone(members_.remaining_ranks_of(process));
    return end_if_closed();
  }
  // It was asked to leave, or dropped, and has ended now: the change without it has begun.
  if (known) return;
  // A transport may have reported the loss of a joining rank before HoldForView, to ranks for which
  // it was lost already.
  const std::vector<Rank> arriving = arriving_ranks();
  for (const Rank rank : members_.remaining_ranks_of(process))
    if (std::binary_search(arriving.begin(), arriving.end(), rank))
      crew_.send_to_ranks(PeerLost{rank, ""});
  for (const Rank rank : members_.remaining_ranks_of(process))
    if (!on_rank_down(rank, kProcessEnded)) return;
  begin_view_change();
}

// Their loss ends the run, or follows its failure.
void SupervisorState::note_gone(const std::vector<Rank>& ranks) {
  gone_.insert(ranks.begin(), ranks.end());
}

// The rank, and with it all of its process where that is lost.
void SupervisorState::fail_without(Rank rank, std::string why) {
  const std::int32_t process = members_.process_of(rank);
  note_gone(members_.is_process_lost(process) ? members_.remaining_ranks_of(process)
                                              : std::vector<Rank>{rank});
  fail({Errc::peer_down, std::move(why)});
}

// Reports to every transport, so that none waits for the process. Transports report to their ranks,
// after the messages of the lost ranks that have arrived.
void SupervisorState::report_process_lost(std::int32_t process) {
  if (!members_.lose_process(process)) return;
  suspects_.remove(process);
  silent_.remove(process);
  end_links_to(process);
}

void SupervisorState::end_links_to(std::int32_t process) {
  if (config_.process_down) config_.process_down(process);
  crew_.send_to(members_.remaining_processes(), ProcessLost{process});
  // It connects to those that were members as it got its place.
  if (returning_ && returning_->agent) self_->send(returning_->agent, ProcessLost{process});
}

// Why the run ends at once without these ranks of one process: what follows the reason of their
// loss. None: the others may continue, see why_no_view_without().
std::optional<std::string> SupervisorState::why_ends_without(const std::vector<Rank>& ranks) const {
  const bool serves = std::any_of(ranks.begin(), ranks.end(),
                                  [this](Rank rank) { return rank >= members_.workers(); });
  if (!config_.tolerates_worker_loss || serves) return "";
  const std::int32_t remaining =
      members_.remaining_workers() - static_cast<std::int32_t>(ranks.size());
  if (remaining < config_.min_workers)
    return fmt::format("; {} of {} ranks that train remain, and --min-ranks needs {}", remaining,
                       members_.workers(), config_.min_workers);
  // Without a model at its end the run would continue in vain.
  const bool is_last = std::any_of(ranks.begin(), ranks.end(), [this](Rank rank) {
    return members_.process_of(rank) == 0 && !fetches_models_without(rank);
  });
  if (is_last)
    return "; it was the last rank of process 0, which took the models of the others through it";
  return std::nullopt;
}

// Else the run would end with the process, which may still come back.
bool SupervisorState::can_lose(std::int32_t process) const {
  const std::vector<Rank> ranks = members_.remaining_ranks_of(process);
  return !why_ends_without(ranks) && why_no_view_without(ranks).empty();
}

// False where that ends the run.
bool SupervisorState::on_rank_down(Rank rank, const std::string& why) {
  if (members_.is_lost(rank)) return true;
  const std::string process =
      members_.processes() == 1 ? "" : " of process " + std::to_string(members_.process_of(rank));
  const std::string gone = "rank " + std::to_string(rank) + process + " is gone: ";
  if (const auto reason = why_ends_without({rank})) {
    fail_without(rank, gone + why + *reason);
    return false;
  }
  const std::string left = fmt::format("rank {} has left: ", rank);
  config_.observer->on_warning((drained_.count(rank) > 0 ? left : gone) +
                               "the other ranks continue without it" +
                               (config_.changes_members ? "" : " and write no more checkpoints"));
  lose(rank);
  return true;
}

// With servers, no checkpoint can be resumed without one of the ranks: those before the loss stay.
void SupervisorState::lose(Rank rank) {
  last_news_ = now();
  members_.lose(rank);
  crew_.report_lost(rank);
  config_.observer->on_rank_lost(rank);
  progress_.lose(rank);
  waits_.remove(rank);
  reports_.remove(rank);
  interrupt_checkpoint();
  if (wiring_.asks()) refuse_wiring("the members are changing, ask again");
  if (!config_.changes_members) checkpoints_.disable();
  drain_if_finished();
  if (stage_ != Stage::draining) return;
  // No view follows: nobody waits for models of the rank any more.
  crew_.report_members({members_.remaining_ranks_that_train(), {}, 0});
  resume_checkpoint();
  if (reports_.in_round()) return evaluate_reports();
  if (reports_.complete()) average_models();
  end_if_finished();
}

// ---- links ----

void SupervisorState::on_link_lost(LinkLost lost) {
  if (stage_ != Stage::running && stage_ != Stage::draining) return;
  for (const Rank rank : {lost.reporter, lost.peer})
    if (members_.is_lost(rank) || members_.is_process_lost(members_.process_of(rank))) return;
  const std::int32_t process = members_.process_of(lost.peer);
  lost.reason = one_line(std::move(lost.reason));
  if (process == 0) return fail_over_link(lost);  // this one
  if (suspects_.add(process, std::move(lost))) ask_whether_alive(process);
}

// Repeated until the process answers or is lost.
void SupervisorState::ask_whether_alive(std::int32_t process) {
  if (stage_ == Stage::closing || !suspects_.has(process)) return;
  self_->request(crew_.agent_of(process), kAnswerTimeout, Ping{})
      .then([this, process](Pong) { on_answer(process); },
            [this, process](const caf::error& error) { on_no_answer(process, error); });
}

void SupervisorState::on_answer(std::int32_t process) {
  if (stage_ == Stage::closing) return;
  const auto lost = suspects_.on_answer(process);
  if (lost && !members_.is_process_lost(members_.process_of(lost->reporter))) fail_over_link(*lost);
}

void SupervisorState::on_no_answer(std::int32_t process, const caf::error& error) {
  if (stage_ == Stage::closing) return;
  // An answer may wait behind the work for a state.
  const auto silence = suspects_.on_no_answer(process, now(), checkpoints_.cutting());
  if (!silence) return;
  if (silence->over) return on_process_down(process);
  if (silence->first && error == caf::sec::request_timeout)
    config_.observer->on_warning(
        fmt::format("process {}, to which rank {} has lost its link, does not answer: it counts as "
                    "lost after {}",
                    process, silence->reporter, seconds_text(config_.silence)));
  self_->delayed_send(SupervisorActor{self_}, kAnswerTimeout, AskAgain{process});
}

void SupervisorState::fail_over_link(const LinkLost& lost) {
  const Error error = link_error(lost, members_);
  std::vector<std::int32_t> ends = dispensable_processes(lost, members_);
  // One that joins has nothing yet that the others need.
  std::stable_partition(ends.begin(), ends.end(), [this](std::int32_t end) {
    const std::vector<Rank> ranks = members_.remaining_ranks_of(end);
    return std::any_of(ranks.begin(), ranks.end(),
                       [this](Rank rank) { return view_.lacks_state(rank); });
  });
  const auto found =
      std::find_if(ends.begin(), ends.end(), [this](std::int32_t end) { return can_lose(end); });
  if (found == ends.end()) return fail(error);
  const std::int32_t process = *found;
  config_.observer->on_warning("process " + std::to_string(process) +
                               " is dropped: " + error.message);
  dismiss_process(process, error);
}

// The process lives; it ends when it receives this.
void SupervisorState::dismiss_process(std::int32_t process, const Error& error) {
  crew_.send_to({process}, RunEnded{true, error, false, result_.checkpoint});
  on_process_down(process);
}

}  // namespace grapevine
