#include "apps/launch/launch_job.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ostream>
#include <utility>

#include "actors/record/resume_hint.hpp"

namespace grapevine {
namespace {

constexpr int kSshFailed = 255;  // ssh's, also where a signal ended the process there
constexpr std::chrono::milliseconds kJobPoll{1000};   // at the latest
constexpr std::chrono::milliseconds kPollBehind{20};  // while lines wait to be written

Timestamp now_on_clock() { return std::chrono::steady_clock::now().time_since_epoch(); }
constexpr std::size_t kFull = std::size_t{1} << 20;  // of lines that wait, in bytes
constexpr std::size_t kFullAtTheEnd = std::size_t{1} << 26;
// From SIGKILL for a process on another host until the connection is cut: ssh ends with the
// process.
constexpr std::chrono::seconds kEndOfSsh{2};
constexpr std::size_t kNamed = 3;  // of the processes that are awaited

std::string name_of(const LaunchPlace& placement) {
  return fmt::format("process {} on {}", placement.rank, placement.host);
}

std::string describe(const LaunchPlace& placement, const ProcessEnd& end) {
  const bool unclear = !placement.here && end.exit_code == kSshFailed;
  const char* const causes =
      ": ssh could not connect or lost the connection, or a signal ended the process there";
  return end_text(name_of(placement), end) + (unclear ? causes : "");
}

std::string prefix(const LaunchPlace& placement) { return fmt::format("[{}] ", placement.rank); }

// A signal ended the process, or the connection to it.
bool is_cut_off(const LaunchPlace& placement, const ProcessEnd& end) {
  return end.signal != 0 || (!placement.here && end.exit_code == kSshFailed);
}

}  // namespace

Expected<void> LaunchJob::start(const std::vector<LaunchedCommand>& commands) {
  for (const LaunchedCommand& command : commands) {
    const auto process = children_.start(command.command);
    if (!process)
      return Error{process.error().code,
                   name_of(command.placement) + ": " + process.error().message};
    Member& member = members_.emplace_back();
    member.placement = command.placement;
    member.command = command.command;
    member.process = *process;
    member_of_.push_back(members_.size() - 1);
  }
  return {};
}

Expected<void> LaunchJob::wait() {
  while (running()) {
    collect(poll_once());
    forward_signals();
    end_what_joins();
    enforce_grace();
  }
  bool stops = stop_requested();
  writer_.drain(signals_, stops);
  if (stops) verdict_.stop();
  return verdict_.result();
}

std::optional<int> LaunchJob::exit_code() const {
  const auto result = verdict_.result();
  if (verdict_.at_once() && !result && result.error().code == Errc::failed) return 128 + SIGINT;
  if (members_.size() != 1 || !members_[0].end || members_[0].end->signal == 0) return {};
  return 128 + members_[0].end->signal;
}

bool LaunchJob::lost_connection() const {
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    const bool cut_here = member.grace.killed() && member.end->signal == SIGKILL;
    return !member.placement.here && is_cut_off(member.placement, *member.end) &&
           (!member.asked || member.placement.rank == 0 || cut_here);
  });
}

bool LaunchJob::running() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return !member.end; });
}

std::vector<ChildGroup::Ended> LaunchJob::poll_once() {
  // A process that is to end may write something first.
  const bool reads = writer_.waiting_bytes() < (is_to_end() ? kFullAtTheEnd : kFull);
  std::vector<pollfd> waits = {{signals_.descriptor(), POLLIN, 0}};
  children_.add_to(waits, reads);
  const auto timeout = reads ? poll_timeout() : std::min(poll_timeout(), kPollBehind);
  ::poll(waits.data(), waits.size(), static_cast<int>(timeout.count()));
  return children_.handle(waits);
}

std::chrono::milliseconds LaunchJob::poll_timeout() const {
  auto timeout = kJobPoll;
  for (const Member& member : members_) {
    const auto next = member.cut_at ? member.cut_at : member.grace.kill_at();
    if (member.end || !next) continue;
    const auto left = *next - now_on_clock();
    timeout = std::min(timeout, std::chrono::duration_cast<std::chrono::milliseconds>(left));
  }
  return std::max(timeout, std::chrono::milliseconds(0));
}

void LaunchJob::collect(const std::vector<ChildGroup::Ended>& all) {
  std::vector<Member*> ended;
  for (const ChildGroup::Ended& one : all) {
    Member& member = members_[member_of_[one.child]];
    if (member.end) continue;  // it was given up
    member.end = one.end;
    member.asked = is_to_end();
    if (member.placement.rank == 0) verdict_.head_ended(one.end);
    ended.push_back(&member);
  }
  // A process that was killed is the cause; one that then exited has lost a peer.
  std::stable_partition(ended.begin(), ended.end(), [](const Member* member) {
    return is_cut_off(member->placement, *member->end);
  });
  for (Member* member : ended) on_end(*member);
}

MemberEnd LaunchJob::end_of(const Member& member) {
  return {member.placement.rank,
          *member.end,
          is_cut_off(member.placement, *member.end),
          member.grace.killed(),
          member.restarted,
          member.held.text(),
          describe(member.placement, *member.end)};
}

void LaunchJob::on_end(Member& member) {
  const MemberEnd end = end_of(member);
  Ruling ruling = verdict_.ended(end);
  if (member.placement.rank == 0) on_head_end();
  if (ruling.repeats) member.held.drop();
  release_held(member);
  if (ruling.then == Ruling::Then::restart) {
    if (start_again(member, end.text)) return verdict_.restarted();
    ruling = verdict_.not_restarted();
  }
  if (ruling.then == Ruling::Then::nothing) return;
  if (ruling.then == Ruling::Then::end_others) return ask_to_end(ruling.lost, ruling.first);
  if (running()) say(end.text + (run_has_ended() ? ": the run ends" : ": the others continue"));
}

// Process 0 contains the supervisor: a run does not outlive it.
bool LaunchJob::run_has_ended() const {
  return options_.ends_with_head && members_.front().end.has_value();
}

// Processes of a run end by themselves with it, unless they are frozen.
void LaunchJob::on_head_end() {
  if (!options_.ends_with_head) return;
  joins_end_ = now_on_clock() + options_.joins_timeout;
  if (options_.after_head.count() == 0) return;
  for (Member& member : members_) member.grace.begin(now_on_clock(), options_.after_head);
}

// It joins the run that the others continue, or have not begun; without process 0 there is none.
bool LaunchJob::start_again(Member& member, const std::string& why) {
  const bool may = restarted_ < options_.restarts && member.placement.rank != 0 &&
                   !members_[0].end && !is_to_end();
  if (!may) return false;
  auto process = children_.start(member.command);
  if (!process) {
    say(why + ", and it cannot be started again: " + process.error().message);
    return false;
  }
  ++restarted_;
  member_of_.push_back(static_cast<std::size_t>(&member - members_.data()));
  member.process = *process;
  member.end.reset();
  member.restarted = true;
  member.held = HeldError();
  member.grace = GracePeriod();
  member.cut_at.reset();
  say(fmt::format("{}: starting it again ({} of {}); the others {}", why, restarted_,
                  options_.restarts, verdict_.begun() ? "continue" : "wait for it"));
  return true;
}

// `lost`: a process was lost. `first`: they were not asked before.
void LaunchJob::ask_to_end(bool lost, bool first) {
  const auto lost_grace = std::min(options_.grace, options_.lost_grace);
  const auto now = now_on_clock();
  for (Member& member : members_)
    member.grace.begin(now, lost && member.placement.rank != 0 ? lost_grace : options_.grace);
  if (!first) return;
  notice_at_ = now + options_.notice;
  if (!stop_requested()) children_.signal(SIGTERM);
}

void LaunchJob::forward_signals() {
  for (const int number : signals_.take()) {
    children_.signal(number);
    if (number == SIGUSR1) continue;
    verdict_.stop();
    const bool twice = number == SIGINT && interrupted_;
    if (twice) verdict_.stop_at_once();
    for (Member& member : members_)
      member.grace.begin(now_on_clock(), twice ? std::chrono::milliseconds(0) : options_.grace);
    interrupted_ = interrupted_ || number == SIGINT;
  }
}

// Process 0 has ended, and the run with it: processes that still join it are asked to end.
void LaunchJob::end_what_joins() {
  const auto now = now_on_clock();
  if (!joins_end_ || now < *joins_end_) return;
  joins_end_.reset();
  for (Member& member : members_) {
    if (member.end || !member.restarted) continue;
    member.process->signal(SIGTERM);
    member.grace.begin(now, options_.grace);
  }
}

void LaunchJob::enforce_grace() {
  const auto now = now_on_clock();
  if (notice_at_ && now >= *notice_at_) say_what_is_awaited(now);
  for (Member& member : members_) {
    if (member.end) continue;
    const GracePeriod::Due due = member.grace.due(now);
    if (due == GracePeriod::Due::give_up) give_up(member);
    if (due == GracePeriod::Due::kill) kill(member);
    if (!member.cut_at || now < *member.cut_at) continue;
    member.cut_at.reset();
    member.process->kill_group();
  }
}

void LaunchJob::kill(Member& member) {
  if (!verdict_.at_once()) say(name_of(member.placement) + " has not ended: killing it");
  member.process->signal(SIGKILL);
  const auto now = now_on_clock();
  member.grace.kill(now);
  if (member.placement.here) return member.process->kill_group();
  // The signal travels as a word over ssh, which could not send it if it were killed here and now.
  member.cut_at = now + kEndOfSsh;
}

// The last line, the reason of the end, follows the end of its last process.
void LaunchJob::say_what_is_awaited(Timestamp now) {
  notice_at_.reset();
  std::string names;
  std::size_t awaited = 0;
  auto until = now;
  for (const Member& member : members_) {
    const auto kill_at = member.grace.kill_at();
    if (member.end || !kill_at || *kill_at <= now) continue;
    until = std::max(until, *kill_at);
    if (++awaited <= kNamed) names += (names.empty() ? "" : ", ") + name_of(member.placement);
  }
  const std::optional<Error>& failure = verdict_.failure();
  if (awaited == 0 || !failure) return;
  if (awaited > kNamed) names += fmt::format(" and {} more", awaited - kNamed);
  const std::string& why = failure->message;
  const auto left = std::chrono::ceil<std::chrono::seconds>(until - now);
  say(fmt::format("{}: waiting up to {} s for {} to end",
                  why.substr(0, why.size() - resume_hint_in(why).size()), left.count(), names));
}

// A process that waits for a dead disk or device cannot be ended: the job ends without it.
void LaunchJob::give_up(Member& member) {
  say(name_of(member.placement) + " does not end after SIGKILL: check its host");
  member.end = ProcessEnd{-1, SIGKILL};
  if (member.placement.rank == 0) verdict_.head_ended(*member.end);
  verdict_.given_up(end_of(member));
}

void LaunchJob::print_out(const Member& member, std::string line) {
  // Other sources may select output for programs: the environment, files.
  const bool plain = options_.plain_output || line.rfind('{', 0) == 0;
  if (plain && member.placement.rank != 0) return print_prefixed(member, line);
  if (!plain) line.insert(0, prefix(member.placement));
  writer_.add({member.placement.rank, false, std::move(line)});
}

void LaunchJob::print_err(Member& member, std::string line) {
  if (options_.reports_begin && member.placement.rank == 0 && parse_run_begin(line))
    return verdict_.begin();
  member.held.add(std::move(line), [&](const std::string& text) { print_prefixed(member, text); });
}

void LaunchJob::release_held(Member& member) {
  member.held.release([&](const std::string& line) { print_prefixed(member, line); });
}

void LaunchJob::print_prefixed(const Member& member, const std::string& line) {
  writer_.add({member.placement.rank, true, prefix(member.placement) + line});
}

void LaunchJob::say(const std::string& text) { writer_.add({-1, true, "launch: " + text}); }

}  // namespace grapevine
