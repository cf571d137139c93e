#include "net/shm/shm_links.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace grapevine::shm {
namespace {

std::size_t index(std::int32_t process) { return static_cast<std::size_t>(process); }

}  // namespace

ShmLinks::ShmLinks(const Placement& placement, std::vector<std::string> names,
                   const JobToken& token, const std::vector<std::int32_t>& absent)
    : own_{placement.own_process, placement_digest(placement), token},
      names_(std::move(names)),
      links_(index(placement.processes()), Link::awaited),
      absent_(absent.begin(), absent.end()) {
  for (const std::int32_t process : absent) links_[index(process)] = Link::lost;
}

const std::string& ShmLinks::name(std::int32_t process) const { return names_[index(process)]; }

Refusal ShmLinks::judge(const ShmHello& hello) {
  if (hello.placement != own_.placement || hello.process < 0 ||
      index(hello.process) >= links_.size())
    return Refusal::other_placement;
  const std::lock_guard<std::mutex> lock(mutex_);
  const Link link = links_[index(hello.process)];
  if (link == Link::returning) return Refusal::none;
  if (hello.process == own_.process || link == Link::open) {
    if (first(Link::awaited) >= 0) {  // still starting: the job is set up wrongly
      duplicate_ =
          fmt::format("two processes call themselves process {}: give every process its own index",
                      hello.process);
      changed_.notify_all();
    }
    return Refusal::duplicate_process;
  }
  if (hello.process < own_.process) return Refusal::lower_process;
  return link == Link::awaited ? Refusal::none : Refusal::too_late;
}

bool ShmLinks::open(std::int32_t process) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Link& link = links_[index(process)];
  const bool returns = link == Link::returning;
  if (link == Link::awaited || returns) link = Link::open;
  changed_.notify_all();
  return returns;
}

void ShmLinks::lose(std::int32_t process) {
  const std::lock_guard<std::mutex> lock(mutex_);
  links_[index(process)] = Link::lost;
  changed_.notify_all();
}

void ShmLinks::expect(std::int32_t process) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Link& link = links_[index(process)];
  if (link != Link::lost) return;
  link = Link::returning;
  absent_.erase(process);
}

// The first other process with that link, or -1; of lost ones, only those that were present.
// REQUIRES: mutex_ is held.
std::int32_t ShmLinks::first(Link link) const {
  for (std::int32_t p = 0; index(p) < links_.size(); ++p)
    if (p != own_.process && links_[index(p)] == link && absent_.count(p) == 0) return p;
  return -1;
}

// REQUIRES: mutex_ is held.
bool ShmLinks::is_decided() const {
  return !duplicate_.empty() || first(Link::lost) >= 0 || first(Link::awaited) < 0;
}

Expected<void> ShmLinks::wait_connected(Clock::time_point deadline, const std::string& patience,
                                        const Cancelled& cancelled) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_until(lock,
                              std::min<Clock::time_point>(deadline, Clock::now() + kCancelPoll),
                              [this] { return is_decided(); })) {
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
    if (Clock::now() >= deadline) break;
  }
  if (!duplicate_.empty()) return bad_input(duplicate_);
  if (const std::int32_t lost = first(Link::lost); lost >= 0)
    return Error{Errc::peer_down,
                 name(lost) + " ended while the others were connecting: see its log"};
  if (const std::int32_t missing = first(Link::awaited); missing >= 0)
    return Error{Errc::timeout,
                 fmt::format("{} did not connect within {}: see whether it runs and reaches this "
                             "host",
                             name(missing), patience)};
  return {};
}

}  // namespace grapevine::shm
