#include "actors/run/supervision/losses/link_suspects.hpp"

#include <fmt/format.h>

#include <utility>

#include "net/loss_reason.hpp"

namespace grapevine {

std::optional<LinkLost> LinkSuspects::on_answer(std::int32_t process) {
  const auto found = suspects_.find(process);
  if (found == suspects_.end()) return std::nullopt;
  LinkLost lost = std::move(found->second.lost);
  suspects_.erase(found);
  return lost;
}

std::optional<LinkSuspects::Silence> LinkSuspects::on_no_answer(std::int32_t process, Timestamp now,
                                                                bool busy) {
  const auto found = suspects_.find(process);
  if (found == suspects_.end()) return std::nullopt;
  std::optional<Timestamp>& since = found->second.silent_since;
  const bool first = !since;
  if (first || busy) since = now;
  return Silence{found->second.lost.reporter, first, now - *since >= silence_};
}

Error link_error(const LinkLost& lost, const RunMembers& members) {
  const auto name = [&](Rank rank) {
    return fmt::format("rank {} (process {})", rank, members.process_of(rank));
  };
  std::string advice = "look at the network between them";
  if (is_error_here(lost.reason))
    advice = "look at the output of process " + std::to_string(members.process_of(lost.reporter));
  if (is_malformed(lost.reason)) advice = "see whether both run the same version";
  return {Errc::peer_down, "link between " + name(lost.reporter) + " and " + name(lost.peer) +
                               " was lost: " + lost.reason + "; both processes live: " + advice};
}

std::vector<std::int32_t> dispensable_processes(const LinkLost& lost, const RunMembers& members) {
  const bool reporter_fails = is_error_here(lost.reason);
  std::vector<std::int32_t> processes;
  for (const Rank rank :
       {reporter_fails ? lost.reporter : lost.peer, reporter_fails ? lost.peer : lost.reporter})
    if (const std::int32_t process = members.process_of(rank); process > 0)
      processes.push_back(process);
  return processes;
}

}  // namespace grapevine
