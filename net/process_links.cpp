#include "net/process_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "messages/text/fnv1a.hpp"
#include "net/little_endian.hpp"

namespace grapevine {
namespace {

std::size_t index(std::int32_t process) { return static_cast<std::size_t>(process); }

}  // namespace

std::string describe(Refusal refusal) {
  switch (refusal) {
    case Refusal::none:
      return "it accepted";
    case Refusal::duplicate_process:
      return "another process has this one's index: give every process its own";
    case Refusal::other_job:
      return "it belongs to another job: check the address, or end the older job";
    case Refusal::other_placement:
      return "it has other ranks in other processes: start all with the same placement";
    case Refusal::too_late:
      return "it has started without this process, or has lost it before";
    case Refusal::lower_process:
      return "a process dials only processes of lower index: check the list of addresses";
    case Refusal::other_process:  // each end names the processes
      return "it is not the process that was dialled";
  }
  return "it refused for a reason that this version does not know";
}

std::uint64_t placement_digest(const Placement& placement) {
  std::vector<std::byte> bytes;
  little_endian::put(bytes, placement.processes());
  for (const std::int32_t process : placement.process_of) little_endian::put(bytes, process);
  return fnv1a({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string link_proof(const JobToken& token, std::string_view transport,
                       std::string_view statement, const LinkEnd& dialler,
                       const LinkEnd& listener) {
  const std::string key(reinterpret_cast<const char*>(token.data()), token.size());
  const auto text = [](const LinkEnd& end) {
    return fmt::format("{} {} {}", end.process, end.placement, end.nonce);
  };
  return mac_of(key, {transport, statement, text(dialler), text(listener)});
}

Expected<void> check_processes(const std::vector<std::string>& addresses,
                               const Placement& placement) {
  const std::int32_t processes = placement.processes();
  if (placement.own_process < 0 || placement.own_process >= processes)
    return bad_input(fmt::format("this is process {} of {}: its index must be below their number",
                                 placement.own_process, processes));
  if (static_cast<std::int32_t>(addresses.size()) != processes)
    return bad_input(
        fmt::format("{} addresses for {} processes: give one each", addresses.size(), processes));
  for (const std::int32_t process : placement.process_of)
    if (process < 0 || process >= processes)
      return bad_input(fmt::format("a rank is placed in process {} of {}", process, processes));
  return {};
}

ProcessLinks::ProcessLinks(const Placement& placement, std::vector<std::string> names,
                           const std::vector<std::int32_t>& absent)
    : own_process_(placement.own_process),
      digest_(placement_digest(placement)),
      names_(std::move(names)),
      links_(index(placement.processes()), Link::awaited),
      absent_(absent.begin(), absent.end()) {
  for (const std::int32_t process : absent) links_[index(process)] = Link::lost;
}

const std::string& ProcessLinks::name(std::int32_t process) const { return names_[index(process)]; }

Refusal ProcessLinks::judge(std::int32_t process, std::uint64_t placement, std::int32_t to) {
  if (placement != digest_ || process < 0 || index(process) >= links_.size())
    return Refusal::other_placement;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Link link = links_[index(process)];
  const bool is_meant = to == own_process_;
  if (is_meant && link == Link::returning) return Refusal::none;
  // Of a process that means another one, an open link shows that its addresses are wrong, no more.
  if (process == own_process_ || (is_meant && link == Link::open)) {
    if (first(Link::awaited) >= 0) {  // still starting: the job is set up wrongly
      duplicate_ = fmt::format(
          "two processes call themselves process {}: give every process its own index", process);
      changed_.notify_all();
    }
    return Refusal::duplicate_process;
  }
  if (!is_meant) return Refusal::other_process;
  if (process < own_process_) return Refusal::lower_process;
  return link == Link::awaited ? Refusal::none : Refusal::too_late;
}

bool ProcessLinks::open(std::int32_t process) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Link& link = links_[index(process)];
  const bool returns = link == Link::returning;
  if (link == Link::awaited || returns) link = Link::open;
  changed_.notify_all();
  return returns;
}

void ProcessLinks::lose(std::int32_t process) {
  const std::lock_guard<std::mutex> lock(mutex_);
  links_[index(process)] = Link::lost;
  changed_.notify_all();
}

void ProcessLinks::expect(std::int32_t process) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Link& link = links_[index(process)];
  if (link != Link::lost) return;
  link = Link::returning;
  absent_.erase(process);
}

// The first other process with that link, or -1. Processes that were absent do not count as lost.
// REQUIRES: mutex_ is held.
std::int32_t ProcessLinks::first(Link link) const {
  for (std::int32_t p = 0; index(p) < links_.size(); ++p)
    if (p != own_process_ && links_[index(p)] == link && absent_.count(p) == 0) return p;
  return -1;
}

// REQUIRES: mutex_ is held.
bool ProcessLinks::is_connected() const {
  return first(Link::awaited) < 0 && first(Link::lost) < 0;
}

// As if they had been absent. REQUIRES: mutex_ is held.
void ProcessLinks::skip_lost(const LostMeanwhile& lost) {
  for (std::int32_t p = 0; index(p) < links_.size(); ++p) {
    Link& link = links_[index(p)];
    const bool missing = link == Link::awaited || link == Link::lost;
    if (p == own_process_ || !missing || absent_.count(p) > 0 || !lost(p)) continue;
    link = Link::lost;
    absent_.insert(p);
  }
}

Expected<void> ProcessLinks::wait_connected(Clock::time_point deadline, const std::string& timeout,
                                            const Cancelled& cancelled, const LostMeanwhile& lost) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (lost) skip_lost(lost);               // one that was lost before it was dialled
  Clock::time_point whole = Clock::now();  // when no link was broken
  const auto decided = [&] {
    const auto now = Clock::now();
    const bool broken = first(Link::lost) >= 0;
    if (!broken) whole = now;
    const bool given_up = broken && (!lost || now - whole > kLossIsReported);
    return !duplicate_.empty() || given_up || is_connected();
  };
  while (!changed_.wait_until(
      lock, std::min<Clock::time_point>(deadline, Clock::now() + kCancelPoll), decided)) {
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
    if (Clock::now() >= deadline) break;
    if (lost) skip_lost(lost);
  }
  if (!duplicate_.empty()) return bad_input(duplicate_);
  if (const std::int32_t ended = first(Link::lost); ended >= 0)
    return Error{Errc::peer_down,
                 name(ended) + " ended while the others were connecting: see its log"};
  if (const std::int32_t missing = first(Link::awaited); missing >= 0)
    return Error{Errc::timeout,
                 fmt::format("{} did not connect within {}: see whether it runs and reaches this "
                             "host",
                             name(missing), timeout)};
  return {};
}

}  // namespace grapevine
