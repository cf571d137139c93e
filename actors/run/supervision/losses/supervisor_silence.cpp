// Processes that answer nothing: the messages of the supervisor's SilentProcesses.
#include <fmt/format.h>

#include <algorithm>

#include "actors/run/supervisor.hpp"

namespace grapevine {

void SupervisorState::hear(Rank rank) {
  const std::int32_t process = members_.process_of(rank);
  if (silent_.watches() && process > 0 && !members_.is_process_lost(process))
    silent_.hear(process, now());
}

// A process that joins, and has not connected to all others for a while.
bool SupervisorState::joins_long() const {
  return returning_ && returning_->agent && now() - granted_at_ >= silent_.patience();
}

// Only while a rank of another process waits, or a process that joins: one that nobody needs may be
// silent.
void SupervisorState::watch_silence() {
  if (!silent_.watches()) return;
  const bool joins = joins_long();
  const bool waits = joins || waits_.is_held_up(now(), silent_.patience());
  if (stage_ != Stage::running || !waits) return silent_.relax();
  const auto usual = [this](std::int32_t process) { return usual_silence(process); };
  for (const SilentProcesses::Silence& silence : silent_.find(now(), usual))
    if ((joins || waits_.is_held_up(now(), silent_.patience(), silence.process)) &&
        can_lose(silence.process))
      return lose_silent(silence);
  for (const std::int32_t process : silent_.ask(now()))
    self_->request(crew_.agent_of(process), caf::infinite, Ping{})
        .then([this, process](Pong) { on_pong(process); }, [](const caf::error&) {});
}

// An answer may wait behind the work for a state, for about as long as in a cut before.
std::optional<Duration> SupervisorState::usual_silence(std::int32_t process) const {
  const std::optional<Duration> step = waits_.pace_of_process(process);
  if (!checkpoints_.cutting()) return step;
  const std::optional<Duration> cut = checkpoints_.longest_cut();
  return step && cut ? std::optional(std::max(*step, *cut)) : std::nullopt;
}

// It may come long after the process has been given up.
void SupervisorState::on_pong(std::int32_t process) {
  if (!members_.is_process_lost(process)) silent_.hear(process, now());
}

// It learns this once it continues.
void SupervisorState::lose_silent(const SilentProcesses::Silence& silence) {
  lose_silent_process(
      silence.process,
      fmt::format("process {} has not answered for {:.1f} s while others waited (--lost-after)",
                  silence.process, to_seconds(silence.length)));
}

void SupervisorState::lose_silent_process(std::int32_t process, const std::string& reason) {
  config_.observer->on_warning(reason + ": it counts as lost");
  dismiss_process(process, {Errc::peer_down, reason});
}

// A rank that joins has nothing to do but to answer, and the others wait until it does: its process
// may answer while the rank does not. Time in which this process was suspended does not count.
void SupervisorState::watch_change() {
  if (stage_ != Stage::running || !silent_.watches() || !view_.in_progress()) return;
  if (now() - change_watched_ > silent_.patience()) change_began_ = now();
  change_watched_ = now();
  const Duration length = now() - change_began_;
  const std::vector<Rank> arriving = arriving_ranks();
  for (const Rank rank : view_.unanswered()) {
    const std::int32_t process = members_.process_of(rank);
    const bool joins = process > 0 && std::binary_search(arriving.begin(), arriving.end(), rank);
    if (!joins || length < silent_.limit(usual_silence(process)) || !can_lose(process)) continue;
    return lose_silent_process(
        process, fmt::format("rank {} of process {}, which joins, has not answered for {:.1f} s "
                             "while all others waited for it (--lost-after)",
                             rank, process, to_seconds(length)));
  }
}

}  // namespace grapevine
