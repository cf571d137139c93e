// The verdict of `launch`, for each order of ends that counts.
#include "apps/launch/job_verdict.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/console/signals.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace job_verdict_test {

using Then = Ruling::Then;
// Returns the ruling, where there is one.
using Event = std::function<Ruling(JobVerdict&)>;

Event end_of(MemberEnd member) {
  return [member](JobVerdict& verdict) {
    if (member.rank == 0) verdict.head_ended(member.end);
    return verdict.ended(member);
  };
}

std::string name_of(std::int32_t rank) { return "rank " + std::to_string(rank); }

MemberEnd exited_end(std::int32_t rank, int code, const std::string& said) {
  return {rank, {code, 0}, false, false, false, said, name_of(rank) + " exited"};
}
Event exited(std::int32_t rank, int code, const std::string& said = "") {
  return end_of(exited_end(rank, code, said));
}
Event exited_after_restart(std::int32_t rank, int code, const std::string& said = "") {
  MemberEnd end = exited_end(rank, code, said);
  end.restarted = true;
  return end_of(end);
}
MemberEnd killed_end(std::int32_t rank, int number, bool by_job) {
  return {rank, {-1, number}, true, by_job, false, "", name_of(rank) + " was killed"};
}
Event killed(std::int32_t rank, int number = SIGKILL) {
  return end_of(killed_end(rank, number, false));
}
Event killed_by_job(std::int32_t rank) { return end_of(killed_end(rank, SIGKILL, true)); }
Event stop() {
  return [](JobVerdict& verdict) {
    verdict.stop();
    return Ruling();
  };
}
Event stop_at_once() {
  return [](JobVerdict& verdict) {
    verdict.stop_at_once();
    return Ruling();
  };
}
Event begin() {
  return [](JobVerdict& verdict) {
    verdict.begin();
    return Ruling();
  };
}
Event restarted() {
  return [](JobVerdict& verdict) {
    verdict.restarted();
    return Ruling();
  };
}
Event not_restarted() {
  return [](JobVerdict& verdict) { return verdict.not_restarted(); };
}
Event given_up(std::int32_t rank) {
  return [rank](JobVerdict& verdict) {
    if (rank == 0) verdict.head_ended({-1, SIGKILL});
    verdict.given_up(killed_end(rank, SIGKILL, true));
    return Ruling();
  };
}

struct Case {
  std::string name;
  bool survivors_continue;
  std::vector<Event> events;
  Then then;                 // of the last one
  std::optional<Errc> code;  // none: the job has succeeded
  std::string message;
};

const std::string kLost1 = "rank 1 is silent";
const std::string kStopped = "stopped at step 5; resume with --resume out";

const std::vector<Case> kOthersEnd = {
    {"success", false, {exited(1, 0), exited(0, 0)}, Then::nothing, {}, ""},
    {"a failure", false, {exited(1, 1)}, Then::end_others, Errc::failed, "rank 1 exited"},
    {"a failure, then a process that lost it",
     false,
     {exited(1, 1), exited(0, kExitLost, kLost1)},
     Then::end_others,
     Errc::failed,
     "rank 1 exited"},
    {"a failure, then another one",
     false,
     {exited(1, 1), exited(0, 1)},
     Then::nothing,
     Errc::failed,
     "rank 1 exited"},
    {"killed", false, {killed(1)}, Then::end_others, Errc::peer_down, "rank 1 was killed"},
    {"killed after a process that lost it",
     false,
     {exited(0, kExitLost, kLost1), killed(1)},
     Then::end_others,
     Errc::peer_down,
     "rank 1 was killed"},
    {"killed by the job after a loss",
     false,
     {exited(0, kExitLost, kLost1), killed_by_job(1)},
     Then::nothing,
     Errc::peer_down,
     kLost1},
    {"ended as it was asked to after a loss",
     false,
     {exited(0, kExitLost, kLost1), killed(1, SIGTERM)},
     Then::nothing,
     Errc::peer_down,
     kLost1},
    {"a second one killed",
     false,
     {killed(1), killed(2)},
     Then::nothing,
     Errc::peer_down,
     "rank 1 was killed"},
    {"bad input",
     false,
     {exited(2, kExitBadInput, "no such model")},
     Then::end_others,
     Errc::bad_input,
     "no such model"},
    {"bad input, then a stop",
     false,
     {exited(2, kExitBadInput, "no such model"), exited(0, kExitStopped, kStopped)},
     Then::end_others,
     Errc::bad_input,
     "no such model"},
    {"killed by a second Ctrl-C",
     false,
     {stop(), stop_at_once(), killed_by_job(0), killed_by_job(1)},
     Then::nothing,
     Errc::failed,
     kEndedAtOnce},
    {"killed by it because a process had died",
     false,
     {killed(1), stop(), stop_at_once(), killed_by_job(0)},
     Then::nothing,
     Errc::peer_down,
     "rank 1 was killed"},
    {"ended by it before the kill",
     false,
     {stop(), stop_at_once(), killed(0, SIGINT), killed_by_job(1)},
     Then::nothing,
     Errc::failed,
     kEndedAtOnce},
    {"killed by it behind a checkpoint",
     false,
     {stop(), exited(0, kExitStopped, kStopped), stop_at_once(), killed_by_job(1)},
     Then::nothing,
     Errc::stopped,
     kStopped},
    {"a stop",
     false,
     {stop(), exited(0, kExitStopped, kStopped), exited(1, 0)},
     Then::nothing,
     Errc::stopped,
     kStopped},
    {"a stop, then a process that the signal ended",
     false,
     {stop(), exited(0, kExitStopped, kStopped), killed(1, SIGTERM)},
     Then::nothing,
     Errc::stopped,
     kStopped},
    {"a stop, then a process that fails by itself",
     false,
     {stop(), exited(0, kExitStopped, kStopped), exited(1, 1)},
     Then::end_others,
     Errc::failed,
     "rank 1 exited; resume with --resume out"},
    {"a stop before training",
     false,
     {stop(), exited(0, kExitFailed, kStoppedBeforeTraining),
      exited(1, kExitFailed, kStoppedBeforeTraining)},
     Then::nothing,
     Errc::failed,
     kStoppedBeforeTraining},
    {"the hint of a process that lost the killed one",
     false,
     {exited(0, kExitLost, kLost1 + "; resume with --resume out"), killed(1)},
     Then::end_others,
     Errc::peer_down,
     "rank 1 was killed; resume with --resume out"},
    {"success without a process that does not end",
     false,
     {exited(0, 0), exited(2, 0), killed_by_job(1)},
     Then::nothing,
     {},
     ""},
    {"a failure after the success of process 0",
     false,
     {exited(0, 0), exited(1, 1), killed_by_job(2)},
     Then::nothing,
     Errc::failed,
     "rank 1 exited"},
    {"killed after the success of process 0",
     false,
     {exited(0, 0), killed(1)},
     Then::end_others,
     Errc::peer_down,
     "rank 1 was killed"},
    {"given up", false, {given_up(1)}, Then::nothing, Errc::failed, "rank 1 was killed"},
    {"given up after the success of process 0",
     false,
     {exited(0, 0), given_up(1)},
     Then::nothing,
     {},
     ""},
    {"given up after a request to stop",
     false,
     {stop(), exited(0, 0), given_up(1)},
     Then::nothing,
     Errc::failed,
     "rank 1 was killed"},
    {"given up after a failure",
     false,
     {exited(0, 1), given_up(1)},
     Then::nothing,
     Errc::failed,
     "rank 0 exited"},
};

const std::vector<Case> kSurvivorsContinue = {
    {"one killed", true, {killed(1)}, Then::restart, Errc::peer_down, "rank 1 was killed"},
    {"one that lost its link",
     true,
     {exited(1, kExitLost, "cut off")},
     Then::restart,
     Errc::peer_down,
     "cut off"},
    {"one that failed", true, {exited(1, 1)}, Then::report, Errc::failed, "rank 1 exited"},
    {"success without it", true, {killed(1), exited(0, 0)}, Then::nothing, {}, ""},
    {"process 0 fails after it",
     true,
     {killed(1), exited(0, 1)},
     Then::report,
     Errc::failed,
     "rank 0 exited"},
    {"process 0 is killed after it",
     true,
     {exited(1, 1), killed(0)},
     Then::restart,
     Errc::peer_down,
     "rank 0 was killed"},
    {"process 0 loses the others after it",
     true,
     {exited(1, 1), exited(0, kExitLost, "too few ranks are left")},
     Then::restart,
     Errc::peer_down,
     "too few ranks are left"},
    {"process 0 is given up after it",
     true,
     {exited(1, 1), given_up(0)},
     Then::nothing,
     Errc::failed,
     "rank 0 was killed"},
    {"a stop after a loss",
     true,
     {killed(1), stop(), exited(0, kExitStopped, kStopped)},
     Then::end_others,
     Errc::stopped,
     kStopped},
    {"a restart that finds its input bad",
     true,
     {killed(1), exited_after_restart(1, kExitBadInput, "no such file"), exited(0, 0)},
     Then::nothing,
     {},
     ""},
    {"a restart that ends after process 0",
     true,
     {killed(1), exited(0, 0), exited_after_restart(1, kExitFailed, "no job there")},
     Then::nothing,
     {},
     ""},
    {"bad input",
     true,
     {exited(1, kExitBadInput, "no such model"), exited(0, 0)},
     Then::nothing,
     Errc::bad_input,
     "no such model"},
    {"process 0 that the request ends before it handles signals",
     true,
     {killed(1), stop(), killed(0, SIGTERM)},
     Then::report,
     Errc::peer_down,
     "rank 1 was killed"},
};

// Until process 0 has reported the begin.
const std::vector<Case> kBeforeTheRun = {
    {"one that failed", true, {exited(1, 1)}, Then::end_others, Errc::failed, "rank 1 exited"},
    {"one that failed, then those that were asked to end",
     true,
     {exited(1, 1), exited(0, kExitFailed, kStoppedBeforeTraining),
      exited(2, kExitFailed, "process 2 was asked to stop before training began")},
     Then::nothing,
     Errc::failed,
     "rank 1 exited"},
    {"killed", true, {killed(1)}, Then::restart, Errc::peer_down, "rank 1 was killed"},
    {"killed, and not started again",
     true,
     {killed(1), not_restarted()},
     Then::end_others,
     Errc::peer_down,
     "rank 1 was killed"},
    {"killed, and a run that this ends although it has begun",
     true,
     {killed(1), not_restarted(), begin(), exited(0, kExitStopped, kStopped), exited(2, 0)},
     Then::nothing,
     Errc::peer_down,
     "rank 1 was killed; resume with --resume out"},
    {"a failure, and a run that this ends although it has begun",
     true,
     {exited(1, 1), exited(0, kExitStopped, kStopped)},
     Then::end_others,
     Errc::failed,
     "rank 1 exited; resume with --resume out"},
    {"started again, then a failure",
     true,
     {killed(1), restarted(), exited_after_restart(1, 1)},
     Then::end_others,
     Errc::failed,
     "rank 1 exited"},
    {"started again, then bad input",
     true,
     {killed(1), restarted(), exited_after_restart(1, kExitBadInput, "no such file")},
     Then::end_others,
     Errc::bad_input,
     "no such file"},
    {"started again, then success",
     true,
     {killed(1), restarted(), begin(), exited(0, 0), exited(1, 0)},
     Then::nothing,
     {},
     ""},
    {"one that has lost another",
     true,
     {exited(2, kExitLost, kLost1)},
     Then::end_others,
     Errc::peer_down,
     kLost1},
    {"a failure after the begin",
     true,
     {begin(), exited(1, 1)},
     Then::report,
     Errc::failed,
     "rank 1 exited"},
    {"killed after the begin, and not started again",
     true,
     {begin(), killed(1), not_restarted()},
     Then::report,
     Errc::peer_down,
     "rank 1 was killed"},
    {"started again after the begin, and then not",
     true,
     {begin(), killed(1), restarted(), exited_after_restart(1, 1), exited(0, 1)},
     Then::report,
     Errc::failed,
     "rank 0 exited"},
};

void expect_verdict(const Case& one, bool begun = true) {
  SCOPED_TRACE(one.name + (one.survivors_continue ? ", survivors continue" : ""));
  JobVerdict verdict(one.survivors_continue, begun);
  Ruling last;
  for (const Event& event : one.events) last = event(verdict);
  EXPECT_EQ(last.then, one.then);
  const auto result = verdict.result();
  ASSERT_EQ(result.ok(), !one.code.has_value());
  if (result) return;
  EXPECT_EQ(result.error().code, *one.code);
  EXPECT_EQ(result.error().message, one.message);
}

TEST(JobVerdict, OfEachOrderOfEnds) {
  for (const Case& one : kOthersEnd) expect_verdict(one);
  for (const Case& one : kSurvivorsContinue) expect_verdict(one);
  for (const Case& one : kBeforeTheRun) expect_verdict(one, false);
}

TEST(JobVerdict, TheOthersAreAskedToEndOnce) {
  JobVerdict verdict(false);
  EXPECT_FALSE(verdict.ending());
  const Ruling first = exited(0, kExitLost, kLost1)(verdict);
  EXPECT_TRUE(first.first && first.lost);
  EXPECT_TRUE(verdict.ending());
  const Ruling second = killed(1)(verdict);
  EXPECT_EQ(second.then, Then::end_others);
  EXPECT_FALSE(second.first);
}

TEST(JobVerdict, ALineThatTheErrorOfTheJobRepeatsIsNotPrinted) {
  JobVerdict verdict(true);
  EXPECT_TRUE(exited(1, kExitLost, kLost1)(verdict).repeats);
  EXPECT_TRUE(exited(2, kExitLost, kLost1)(verdict).repeats);
  EXPECT_FALSE(exited(3, kExitFailed, "no memory")(verdict).repeats);
  exited(0, kExitDone)(verdict);
  EXPECT_TRUE(exited_after_restart(2, kExitFailed, "no job there")(verdict).repeats);
}

}  // namespace job_verdict_test
}  // namespace grapevine
