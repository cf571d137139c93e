#include "actors/cluster/pool_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "actors/record/resume_hint.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {

PoolJob::Process* PoolJob::find(std::int32_t process) {
  const auto i = static_cast<std::size_t>(process);
  return process >= 0 && i < processes.size() ? &processes[i] : nullptr;
}

std::string PoolJob::where(std::int32_t process) const {
  const Process& at = processes[static_cast<std::size_t>(process)];
  return at.node ? fmt::format("process {} on node {}", process, at.node->address)
                 : fmt::format("process {}", process);
}

bool PoolJob::all_ended() const { return running() == 0; }

std::int32_t PoolJob::running() const {
  return static_cast<std::int32_t>(
      std::count_if(processes.begin(), processes.end(),
                    [](const Process& process) { return process.state == State::running; }));
}

std::vector<std::int32_t> PoolJob::places_in(State state) const {
  std::vector<std::int32_t> found;
  for (std::size_t i = 0; i < processes.size(); ++i)
    if (processes[i].state == state) found.push_back(static_cast<std::int32_t>(i));
  return found;
}

std::vector<Enlist> PoolJob::nodes() const {
  std::vector<Enlist> found;
  for (const Process& process : processes) {
    if (process.state != State::running) continue;
    const bool known = std::any_of(found.begin(), found.end(), [&](const Enlist& node) {
      return node.agent == process.node->agent;
    });
    if (!known) found.push_back(*process.node);
  }
  return found;
}

std::vector<std::int32_t> PoolJob::running_on(const NodeAgentActor& agent) const {
  std::vector<std::int32_t> found;
  for (std::size_t i = 0; i < processes.size(); ++i)
    if (processes[i].state == State::running && processes[i].node->agent == agent)
      found.push_back(static_cast<std::int32_t>(i));
  return found;
}

std::int32_t PoolJob::slots_in_use(const Enlist& node) const {
  std::int32_t slots = 0;
  for (const std::int32_t process : running_on(node.agent))
    slots = std::max(slots, processes[static_cast<std::size_t>(process)].slot + 1);
  return slots;
}

std::optional<std::int32_t> PoolJob::free_slot(const Enlist& node) const {
  std::vector<bool> taken(static_cast<std::size_t>(node.slots), false);
  for (const std::int32_t process : running_on(node.agent))
    taken[static_cast<std::size_t>(processes[static_cast<std::size_t>(process)].slot)] = true;
  const auto free = std::find(taken.begin(), taken.end(), false);
  if (free == taken.end()) return std::nullopt;
  return static_cast<std::int32_t>(free - taken.begin());
}

std::int32_t PoolJob::free_slots(const Enlist& node) const {
  return node.slots - static_cast<std::int32_t>(running_on(node.agent).size());
}

void PoolJob::place(std::int32_t process, const Enlist& node, std::int32_t slot, bool joins) {
  Process& at = processes[static_cast<std::size_t>(process)];
  at = Process();
  at.state = State::running;
  at.node = node;
  at.slot = slot;
  at.joins = joins;
}

bool PoolJob::accepts_changes() const {
  return continues && !ending && processes.front().state == State::running;
}

bool PoolJob::may_lose(const std::vector<std::int32_t>& lost) const {
  return std::all_of(lost.begin(), lost.end(),
                     [this](std::int32_t process) { return may_lose(process); });
}

bool PoolJob::others_continue_after(const RankExited& exited) const {
  if (!may_lose(exited.process)) return false;
  // The others wait for it, if it is started again.
  if (!begun && exited.process < first_processes) return exited.signal != 0 && restarts_left > 0;
  const bool failed = exited.signal != 0 || exited.exit_code != 0 || !exited.error.empty();
  // Input that is bad where the job begins is so for all; a stop is that of the job.
  const bool joins = processes[static_cast<std::size_t>(exited.process)].joins;
  const bool of_all =
      exited.exit_code == kExitStopped || (exited.exit_code == kExitBadInput && !joins);
  return failed && !of_all;
}

// Not one that fails by itself. Where a node is silent, and its processes are not, one that was
// started in the place of such a process finds it taken.
bool PoolJob::may_return(const RankExited& exited) const {
  const Process& process = processes[static_cast<std::size_t>(exited.process)];
  const std::string error = process.held.text();
  const bool names_other = error.find(kPlaceTaken) != std::string::npos ||
                           error.find(kPlaceOfSilent) != std::string::npos;
  const bool taken = process.joins && exited.exit_code == kExitBadInput && names_other;
  return exited.signal != 0 || exited.exit_code == kExitLost || taken;
}

std::string PoolJob::end_of(const RankExited& exited) const {
  const std::string who = where(exited.process);
  if (!exited.error.empty()) return who + " could not be started: " + exited.error;
  return end_text(who, {exited.signal != 0 ? -1 : exited.exit_code, exited.signal});
}

bool PoolJob::never_joined(const RankExited& exited) const {
  return some_have_left && processes[static_cast<std::size_t>(exited.process)].joins &&
         exited.signal == 0;
}

std::string PoolJob::prospect() const {
  if (!begun) return "the others wait";
  return running() >= least ? "the others continue" : "too few remain for the run";
}

void PoolJob::blame(Cause why, Error what, std::int32_t process) {
  if (static_cast<int>(why) <= static_cast<int>(cause)) return;
  cause = why;
  error = std::move(what);
  blamed = process;
}

// "control: HOST:PORT", as `train` writes it once it listens, and the begin.
bool PoolJob::take_report(const std::string& line) {
  if (const auto reported = begun ? std::nullopt : parse_run_begin(line)) {
    begin(*reported);
    return true;
  }
  constexpr char kStart[] = "control: ";
  const std::size_t colon = line.rfind(':');
  if (control_port != 0 || line.rfind(kStart, 0) != 0 || colon < sizeof kStart) return false;
  const std::string_view port = std::string_view(line).substr(colon + 1);
  control_port = number_in<decltype(control_port)>(port).value_or(0);
  return false;
}

// The submitter does not know the places of a run that is resumed, nor how many it needs.
void PoolJob::begin(const RunBegin& reported) {
  begun = true;
  if (!continues) return;
  const auto places = static_cast<std::size_t>(std::min(reported.places, kMaxSlots));
  processes.resize(std::max(processes.size(), places));
  least = std::min(reported.least, first_processes);
}

void PoolJob::on_exited(const RankExited& exited) {
  Process& process = processes[static_cast<std::size_t>(exited.process)];
  const bool leaves = exited.exit_code == kExitDone && may_lose(exited.process);
  process.state = leaves ? State::left : State::ended;
  some_have_left = some_have_left || leaves;
  const std::string who = where(exited.process);
  const std::string said = process.held.text();
  // A process that was asked to end before it handled signals ends by the signal.
  const bool asked = ending && (exited.signal == SIGTERM || exited.signal == SIGKILL);
  if (const std::string found = resume_hint_in(said); !found.empty()) hint = found;
  // The end of a process without which the others continue does not count once the job ends.
  const bool counts = exited.process == 0 || (!continues && !(head_ended() && grace.killed())) ||
                      (continues && !ending && !head_ended());
  if (!counts) {
    if (exited.exit_code != 0) process.held.drop();
    return;
  }
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
    const bool quiet =
        held.text() == kStoppedBeforeTraining || held.text() == fmt::format(kStoppedAtTheStart, i);
    if (!quiet && held.line() != quoted.line())
      held.release([&](std::string line) { write(static_cast<std::int32_t>(i), std::move(line)); });
  }
  // It may be why process 0 could not begin, or go on.
  const bool of_head = blamed == 0 && cause != Cause::stopped && cause != Cause::bad_input;
  if (of_head && !failed_before.empty()) error.message += "; before that " + failed_before;
  if (error.code != Errc::peer_down || !resume_hint_in(error.message).empty()) return;
  error.message +=
      cause == Cause::node_died && hint.empty() ? "; resume with --resume when it is back" : hint;
}

}  // namespace grapevine
