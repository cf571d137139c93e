#include "apps/launch_job.hpp"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ostream>
#include <utility>

#include "actors/resume_hint.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace {

constexpr int kSshFailed = 255;            // ssh's, also where a signal ended the process there
constexpr char kErrorStart[] = "error: ";  // of the last line of a verb that failed
constexpr std::chrono::milliseconds kPoll{1000};      // at the latest
constexpr std::chrono::milliseconds kPollBehind{20};  // while lines wait to be written
constexpr std::size_t kFull = std::size_t{1} << 20;   // of lines that wait, in bytes
constexpr std::size_t kFullAtTheEnd = std::size_t{1} << 26;
constexpr std::chrono::seconds kReapPatience{15};
// For processes to end by themselves once one of them was lost, which all that can hear know.
constexpr std::chrono::milliseconds kLostGrace{10000};

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return std::to_string(number) + (name != nullptr ? " (SIG" + std::string(name) + ")" : "");
}

std::string name_of(const LaunchPlace& placement) {
  return "rank " + std::to_string(placement.rank) + " on " + placement.host;
}

std::string describe(const LaunchPlace& placement, const ChildEnd& end) {
  const std::string who = name_of(placement);
  if (end.signal != 0) return who + " was killed by signal " + signal_name(end.signal);
  const std::string text = who + " exited with code " + std::to_string(end.exit_code);
  const bool unclear = !placement.here && end.exit_code == kSshFailed;
  return text + (unclear ? ": ssh could not connect, or a signal ended the process there" : "");
}

std::string prefix(const LaunchPlace& placement) {
  return "[" + std::to_string(placement.rank) + "] ";
}

bool is_error(const std::string& line) { return line.rfind(kErrorStart, 0) == 0; }

}  // namespace

Expected<void> LaunchJob::start(const std::vector<LaunchedCommand>& commands) {
  for (const LaunchedCommand& command : commands) {
    auto process = ChildProcess::start(command.command);
    if (!process)
      return Error{process.error().code,
                   name_of(command.placement) + ": " + process.error().message};
    members_.push_back({command.placement, std::move(*process), false, std::nullopt, ""});
  }
  return {};
}

Expected<void> LaunchJob::wait() {
  while (running()) {
    poll_once();
    collect_ended();
    forward_signals();
    enforce_grace();
  }
  writer_.drain(signals_, stop_requested_);
  return result();
}

Expected<void> LaunchJob::result() const {
  if (!failure_) return {};
  const bool any_done = std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.end && member.end->exit_code == 0;
  });
  if (options_.survivors_go_on && any_done && failure_->code != Errc::bad_input) return {};
  Error failure = *failure_;
  if (failure.code == Errc::peer_down && resume_hint_in(failure.message).empty())
    failure.message += hint_;
  return failure;
}

std::optional<int> LaunchJob::exit_code() const {
  if (members_.size() != 1 || !members_[0].end || members_[0].end->signal == 0) return {};
  return 128 + members_[0].end->signal;
}

bool LaunchJob::running() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return !member.end; });
}

void LaunchJob::poll_once() {
  // Who is to end may have something to say first.
  const bool reads = writer_.waiting_bytes() < (stop_requested_ || ending_ ? kFullAtTheEnd : kFull);
  std::vector<pollfd> waits = {{signals_.descriptor(), POLLIN, 0}};
  for (const Member& member : members_) {
    for (const int descriptor : {member.process->out(), member.process->err()})
      waits.push_back({reads ? descriptor : -1, POLLIN, 0});
    waits.push_back({member.process->end(), POLLIN, 0});
  }
  const auto timeout = reads ? poll_timeout() : std::min(poll_timeout(), kPollBehind);
  if (::poll(waits.data(), waits.size(), static_cast<int>(timeout.count())) <= 0) return;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    read_ready(members_[i], waits[3 * i + 1].revents != 0, waits[3 * i + 2].revents != 0);
    members_[i].ended = waits[3 * i + 3].revents != 0;
  }
}

std::chrono::milliseconds LaunchJob::poll_timeout() const {
  if (!kill_at_) return kPoll;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now());
  return std::clamp(left, std::chrono::milliseconds(0), kPoll);
}

void LaunchJob::read_ready(Member& member, bool out, bool err) {
  if (out) member.process->read_out([&](const std::string& line) { print_out(member, line); });
  if (err) member.process->read_err([&](const std::string& line) { print_err(member, line); });
}

void LaunchJob::collect_ended() {
  std::vector<Member*> ended;
  for (Member& member : members_) {
    if (member.end) continue;
    member.end = member.process->reap([&](const std::string& line) { print_out(member, line); },
                                      [&](const std::string& line) { print_err(member, line); });
    if (member.end) ended.push_back(&member);
  }
  // Who was killed is the cause; who then exited has lost a peer.
  std::stable_partition(ended.begin(), ended.end(),
                        [](const Member* member) { return member->end->signal != 0; });
  for (Member* member : ended) on_end(*member);
}

void LaunchJob::on_end(Member& member) {
  const std::string said = member.held.substr(std::min(member.held.size(), sizeof kErrorStart - 1));
  if (const std::string hint = resume_hint_in(said); !hint.empty()) hint_ = hint;
  // main() prints it; a process that found the same may have got SIGTERM before it could exit.
  if (failure_ && said == failure_->message) member.held.clear();
  const int code = member.end->exit_code;
  if (code == kExitBadInput) return on_bad_input(member, said);
  if (code == kExitLost || code == kExitStopped) return on_said_end(member, said);
  release_held(member);
  if (code != 0) report_failure(member);
}

void LaunchJob::on_bad_input(Member& member, const std::string& said) {
  if (!failure_)
    failure_ = bad_input(said.empty() ? describe(member.placement, *member.end) : said);
  if (said == failure_->message) member.held.clear();
  release_held(member);
  ask_to_end(options_.grace);
}

// It knows what has ended the job: the loss of another process, or a request. All say the same.
void LaunchJob::on_said_end(Member& member, const std::string& said) {
  const bool lost = member.end->exit_code == kExitLost;
  if (!failure_ || (lost && failure_->code == Errc::stopped))
    failure_ = Error{lost ? Errc::peer_down : Errc::stopped,
                     said.empty() ? describe(member.placement, *member.end) : said};
  if (said == failure_->message) member.held.clear();
  release_held(member);
  if (!lost) return ask_to_end(options_.grace);
  if (!options_.survivors_go_on) return ask_to_end(std::min(options_.grace, kLostGrace));
  if (running()) say(describe(member.placement, *member.end) + ": the others go on");
}

// Whether this job has brought that end about.
bool LaunchJob::asked_for(const ChildEnd& end) const {
  if (end.signal == SIGTERM) return ending_ || stop_requested_;
  return (end.signal == SIGINT && stop_requested_) || (end.signal == SIGKILL && give_up_at_);
}

void LaunchJob::report_failure(const Member& member) {
  const bool killed = member.end->signal != 0 && !asked_for(*member.end);
  // How those end that were asked to says nothing more, unless it is what the others have spoken
  // of.
  const bool counts_more =
      failure_ &&
      (failure_->code == Errc::stopped ? killed || member.end->signal == 0
                                       : killed && failure_->code == Errc::peer_down && !killed_);
  if (ending_ && !counts_more) return;
  const std::string text = describe(member.placement, *member.end);
  if (!failure_ || counts_more) failure_ = Error{killed ? Errc::peer_down : Errc::failed, text};
  killed_ = killed_ || killed;
  if (!options_.survivors_go_on) {
    ask_to_end(killed ? std::min(options_.grace, kLostGrace) : options_.grace);
  } else if (running()) {
    say(text + ": the others go on");
  }
}

// The shortest grace counts.
void LaunchJob::ask_to_end(std::chrono::milliseconds grace) {
  const auto kill_at = Clock::now() + grace;
  if (kill_at_ && kill_at < *kill_at_) kill_at_ = kill_at;
  if (std::exchange(ending_, true)) return;
  if (stop_requested_) return;  // they are at it
  signal_all(SIGTERM);
  kill_at_ = kill_at;
}

void LaunchJob::forward_signals() {
  for (const int number : signals_.take()) {
    signal_all(number);
    if (number == SIGUSR1) continue;
    stop_requested_ = true;
    if (!kill_at_) kill_at_ = Clock::now() + options_.grace;
    if (number == SIGINT && interrupted_) kill_at_ = Clock::now();  // asked twice: now
    interrupted_ = interrupted_ || number == SIGINT;
  }
}

void LaunchJob::signal_all(int number) {
  for (Member& member : members_)
    if (!member.end) member.process->signal(number);
}

void LaunchJob::enforce_grace() {
  if (give_up_at_ && Clock::now() >= *give_up_at_) give_up();
  if (!kill_at_ || Clock::now() < *kill_at_) return;
  for (Member& member : members_) {
    if (member.end) continue;
    say(name_of(member.placement) + " has not ended: killing it");
    member.process->signal(SIGKILL);  // through ssh too
    member.process->kill_group();
  }
  kill_at_.reset();
  give_up_at_ = Clock::now() + kReapPatience;
}

// Nothing ends a process that waits for a dead disk or device: the job is over all the same.
void LaunchJob::give_up() {
  for (Member& member : members_) {
    if (member.end) continue;
    say(name_of(member.placement) + " does not end although it was killed: look there");
    member.end = ChildEnd{-1, SIGKILL};
    if (!failure_) failure_ = Error{Errc::failed, describe(member.placement, *member.end)};
  }
}

void LaunchJob::print_out(const Member& member, std::string line) {
  // The verb may have been told elsewhere to speak to machines: in its environment, in its files.
  const bool plain = options_.plain_output || line.rfind('{', 0) == 0;
  if (plain && member.placement.rank != 0) return print_prefixed(member, line);
  if (!plain) line.insert(0, prefix(member.placement));
  writer_.add({member.placement.rank, false, std::move(line)});
}

void LaunchJob::print_err(Member& member, std::string line) {
  release_held(member);
  if (is_error(line)) {
    member.held = std::move(line);
  } else {
    print_prefixed(member, line);
  }
}

void LaunchJob::release_held(Member& member) {
  if (!member.held.empty()) print_prefixed(member, member.held);
  member.held.clear();
}

void LaunchJob::print_prefixed(const Member& member, const std::string& line) {
  writer_.add({member.placement.rank, true, prefix(member.placement) + line});
}

void LaunchJob::say(const std::string& text) { writer_.add({-1, true, "launch: " + text}); }

void LaunchJob::write_line(Console& console, const JobLine& line) {
  (line.to_err ? console.err : console.out) << line.text << '\n';
}

}  // namespace grapevine
