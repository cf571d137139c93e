#include "apps/launch/job_verdict.hpp"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "actors/record/resume_hint.hpp"
#include "apps/console/signals.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {

Ruling JobVerdict::ended(const MemberEnd& member) {
  if (const std::string hint = resume_hint_in(member.said); !hint.empty()) hint_ = hint;
  const auto repeats = [&] { return failure_ && member.said == failure_->message; };
  const int code = member.end.exit_code;
  Ruling ruling;
  // main() prints it; a process that found the same may have got SIGTERM before it could exit.
  ruling.repeats = repeats() || (at_once_ && member.said == kEndedAtOnce);
  if (member.restarted && head_ && code != 0) {
    ruling.repeats = true;  // it found no run to join
    return ruling;
  }
  // All stopped processes report the same, or the reason of the stop.
  const bool at_the_start = ending_ && member.said == fmt::format(kStoppedAtTheStart, member.rank);
  if (at_the_start || (member.said == kStoppedBeforeTraining && (ending_ || stop_requested_))) {
    if (!failure_) {
      failure_ = Error{Errc::failed, member.said};
      stopped_early_ = true;
    }
    ruling.repeats = true;
    return ruling;
  }
  if (code == 0) return ruling;
  const bool own_words = code == kExitBadInput || code == kExitLost || code == kExitStopped;
  const bool repeated_before = ruling.repeats;
  ruling = code == kExitBadInput ? on_bad_input(member)
           : own_words           ? on_said_end(member)
                                 : on_failure(member);
  ruling.repeats = repeated_before || (own_words && repeats());
  return ruling;
}

Ruling JobVerdict::end_others(bool lost) {
  Ruling ruling;
  ruling.then = Ruling::Then::end_others;
  ruling.lost = lost;
  ruling.first = !std::exchange(ending_, true);
  return ruling;
}

Ruling JobVerdict::on_bad_input(const MemberEnd& member) {
  if (!failure_) failure_ = bad_input(member.said.empty() ? member.text : member.said);
  if (!member.restarted || !begun_) return end_others(false);
  // Its file may have gone since, or the run is about to end.
  return others_continue();
}

void JobVerdict::restarted() {
  if (begun_) return;
  failure_.reset();  // the run will be that of all processes
  killed_ = false;
}

Ruling JobVerdict::not_restarted() { return begun_ ? others_continue() : end_others(true); }

Ruling JobVerdict::others_continue() {
  Ruling ruling;
  ruling.then = Ruling::Then::report;
  return ruling;
}

// It knows the reason of the end: the loss of another process, which all that know of it report, or
// a request, which only process 0 reports. Where survivors continue, a stop counts more than a
// loss, but not where this job asks them to end after the loss: process 0 may have begun the run
// meanwhile.
Ruling JobVerdict::on_said_end(const MemberEnd& member) {
  const bool lost = member.end.exit_code == kExitLost;
  const bool counts_more =
      failure_ && (lost ? failure_->code == Errc::stopped || ends_the_run(member)
                        : survivors_continue_ && !ending_ && failure_->code != Errc::bad_input);
  if (!failure_ || counts_more) {
    failure_ = Error{lost ? Errc::peer_down : Errc::stopped,
                     member.said.empty() ? member.text : member.said};
    killed_ = false;
  }
  if (!lost || !survivors_continue_ || !begun_) return end_others(lost);
  Ruling ruling;
  ruling.then = Ruling::Then::restart;
  return ruling;
}

// Whether this job has caused that end. ssh does not report the signal that ended a process there.
bool JobVerdict::asked_for(const MemberEnd& member) const {
  const int number = member.end.signal;
  if (number == SIGTERM || number == 0) return ending_ || stop_requested_;
  return (number == SIGINT && stop_requested_) || (number == SIGKILL && member.killed);
}

// Process 0 ends a run that has survived the ends of others before. One that a request to stop ends
// before it handles signals has no run.
bool JobVerdict::ends_the_run(const MemberEnd& member) const {
  const int number = member.end.signal;
  const bool told = stop_requested_ && (number == SIGTERM || number == SIGINT);
  const bool survives = survivors_continue_ && !ending_ && !told;
  return survives && member.rank == 0 && failure_ && failure_->code != Errc::stopped;
}

// A frozen process that the run was without: it has ended well.
bool JobVerdict::is_left_over(const MemberEnd& member) const {
  const bool behind = member.killed && head_ && head_->exit_code == 0 && !stop_requested_;
  return behind && !survivors_continue_ && !failure_;
}

Ruling JobVerdict::on_failure(const MemberEnd& member) {
  if (is_left_over(member)) return {};
  const bool killed = member.cut_off && !asked_for(member);
  // The end of a process that was asked to end is ignored, unless the others have reported its
  // loss.
  const bool counts_more =
      failure_ &&
      (failure_->code == Errc::stopped
           ? killed || member.end.signal == 0
           : (killed && failure_->code == Errc::peer_down && !killed_) || ends_the_run(member));
  if (ending_ && !counts_more) return {};
  if (!failure_ || counts_more)
    failure_ = Error{killed ? Errc::peer_down : Errc::failed, member.text};
  killed_ = killed_ || killed;
  if (!survivors_continue_) return end_others(killed);
  if (!killed) return begun_ ? others_continue() : end_others(false);
  Ruling ruling;
  ruling.then = Ruling::Then::restart;
  return ruling;
}

void JobVerdict::given_up(const MemberEnd& member) {
  if (is_left_over(member)) return;
  if (!failure_ || ends_the_run(member)) failure_ = Error{Errc::failed, member.text};
}

Expected<void> JobVerdict::result() const {
  if (!failure_) return {};
  // The others may end with success though process 0 fails at the end of the run, or after they
  // left.
  const bool head_done = head_ && head_->exit_code == 0;
  const bool of_the_job = failure_->code == Errc::bad_input || failure_->code == Errc::stopped;
  if (survivors_continue_ && head_done && !of_the_job) return {};
  const bool cut_short = at_once_ && !of_the_job && !failed_before_;
  Error failure = cut_short ? Error{Errc::failed, kEndedAtOnce} : *failure_;
  // Also of a process that has failed by itself: its own line may be far above.
  const bool may_go_on = failure.code == Errc::peer_down || failure.code == Errc::failed;
  if (may_go_on && resume_hint_in(failure.message).empty()) failure.message += hint_;
  return failure;
}

}  // namespace grapevine
