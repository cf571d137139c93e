#include "actors/cluster/pool_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <utility>

#include "actors/record/resume_hint.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {

PoolJob::Process* PoolJob::find(std::int32_t process) {
  const auto i = static_cast<std::size_t>(process);
  return process >= 0 && i < processes.size() ? &processes[i] : nullptr;
}

std::string PoolJob::where(std::int32_t process) const {
  for (const Share& share : shares)
    if (process >= share.first && process < share.first + share.count)
      return fmt::format("rank {} on node {}", process, share.node.address);
  return fmt::format("rank {}", process);
}

bool PoolJob::all_ended() const {
  return std::all_of(processes.begin(), processes.end(), [](const Process& p) { return p.ended; });
}

bool PoolJob::abandon(const Share& share) {
  bool ran = false;
  for (std::int32_t i = share.first; i < share.first + share.count; ++i)
    ran = !std::exchange(processes[static_cast<std::size_t>(i)].ended, true) || ran;
  return ran;
}

void PoolJob::blame(Cause why, Error what, std::int32_t process) {
  if (static_cast<int>(why) <= static_cast<int>(cause)) return;
  cause = why;
  error = std::move(what);
  blamed = process;
}

// "control: HOST:PORT", as `train` writes it once it listens.
void PoolJob::look_for_control(const std::string& line) {
  constexpr char kStart[] = "control: ";
  const std::size_t colon = line.rfind(':');
  if (control_port != 0 || line.rfind(kStart, 0) != 0 || colon < sizeof kStart) return;
  const char* const end = line.data() + line.size();
  const auto [stopped, error] = std::from_chars(line.data() + colon + 1, end, control_port);
  if (error != std::errc() || stopped != end) control_port = 0;
}

void PoolJob::on_exited(const RankExited& exited) {
  Process& process = processes[static_cast<std::size_t>(exited.process)];
  process.ended = true;
  const std::string who = where(exited.process);
  const std::string said = process.held.text();
  // A process that was asked to end before it handled signals ends by the signal.
  const bool asked = ending && (exited.signal == SIGTERM || exited.signal == SIGKILL);
  if (const std::string found = resume_hint_in(said); !found.empty()) hint = found;
  if (!exited.error.empty()) {
    blame(Cause::killed, {Errc::io, who + " could not be started: " + exited.error}, -1);
  } else if (exited.signal != 0 && asked) {
    if (stopping)
      blame(Cause::exited, {Errc::failed, who + " was stopped before it could end by itself"}, -1);
  } else if (exited.signal != 0) {
    blame(Cause::killed, {Errc::peer_down, end_text(who, {-1, exited.signal})}, -1);
  } else if (exited.exit_code != 0) {
    blame_exit(exited, who, said);
  }
}

// The error of a process that lost another one, or was stopped, concerns the whole job; the error
// of a failed process, that process.
void PoolJob::blame_exit(const RankExited& exited, const std::string& who,
                         const std::string& said) {
  const std::string code = end_text(who, {exited.exit_code, 0});
  switch (exited.exit_code) {
    case kExitLost:
      return blame(Cause::lost, {Errc::peer_down, said.empty() ? code : said}, exited.process);
    case kExitStopped:
      return blame(Cause::stopped, {Errc::stopped, said.empty() ? code : said}, exited.process);
    case kExitBadInput:
      return blame(Cause::bad_input, {Errc::bad_input, said.empty() ? code : who + ": " + said},
                   exited.process);
    default:
      if (ending && cause == Cause::lost) return;  // it was asked to end
      blame(Cause::exited, {Errc::failed, said.empty() ? code : who + ": " + said}, exited.process);
  }
}

void PoolJob::conclude(const Write& write) {
  const HeldError quoted =
      blamed < 0 ? HeldError() : processes[static_cast<std::size_t>(blamed)].held;
  const auto same = std::count_if(processes.begin(), processes.end(),
                                  [&](const Process& p) { return p.held.line() == quoted.line(); });
  // An error that several processes report is one of the job, not of the first process.
  if (!quoted.line().empty() && same > 1) error.message = quoted.text();
  for (std::size_t i = 0; i < processes.size(); ++i) {
    HeldError& held = processes[i].held;
    // The line of a process that was stopped before it trained is not an error of its own.
    const bool quiet = held.text() == kStoppedBeforeTraining;
    if (!quiet && held.line() != quoted.line())
      held.release([&](std::string line) { write(static_cast<std::int32_t>(i), std::move(line)); });
  }
  if (error.code != Errc::peer_down || !resume_hint_in(error.message).empty()) return;
  error.message +=
      cause == Cause::node_died && hint.empty() ? "; resume with --resume when it is back" : hint;
}

}  // namespace grapevine
