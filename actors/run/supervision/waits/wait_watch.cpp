#include "actors/run/supervision/waits/wait_watch.hpp"

#include <algorithm>
#include <utility>

namespace grapevine {
namespace {

constexpr int kTimeoutFactor = 3;  // of the usual pace, for a run without any step
constexpr Duration kShortestInterval = std::chrono::milliseconds(250);
constexpr Duration kLongestInterval = std::chrono::seconds(5);

}  // namespace

WaitWatch::WaitWatch(WaitLimits limits) : limits_(limits) {
  if (limits_.abort) limits_.floor = std::min(limits_.floor, *limits_.abort);
}

void WaitWatch::begin(const std::vector<std::int32_t>& process_of, std::int32_t workers,
                      Timestamp now) {
  ranks_.clear();
  workers_ = workers;
  for (std::size_t i = 0; i < process_of.size(); ++i) {
    OfRank& of = ranks_[static_cast<Rank>(i)];
    of.process = process_of[i];
    of.trains = static_cast<std::int32_t>(i) < workers;
    of.step = of.heard = now;
  }
}

void WaitWatch::on_step(Rank rank, Timestamp now) {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return;
  OfRank& of = found->second;
  if (!of.joins && !of.lost_another) pace_.add(rank, now - of.step);
  of.step = of.heard = now;
  of.steps = true;
  of.joins = of.lost_another = of.awaits_answer = false;
}

void WaitWatch::finish(Rank rank) {
  if (const auto found = ranks_.find(rank); found != ranks_.end()) found->second.finished = true;
}

void WaitWatch::remove(Rank rank) {
  ranks_.erase(rank);
  for (auto& [other, of] : ranks_) of.lost_another = true;
}

void WaitWatch::bring_back(Rank rank, std::int32_t process, Timestamp now) {
  OfRank& of = ranks_[rank];
  of = OfRank();
  of.process = process;
  of.trains = rank < workers_;
  of.joins = pace_.slowest().has_value();
  of.step = of.heard = now;
}

void WaitWatch::restart(Timestamp now) {
  for (auto& [rank, of] : ranks_) {
    of.step = of.heard = now;
    of.finished = of.lost_another = of.awaits_answer = false;
    of.report.reset();
  }
  told_.reset();
}

Duration WaitWatch::interval() const {
  return std::clamp(Duration(limits_.floor / 4), kShortestInterval, kLongestInterval);
}

Duration WaitWatch::usual_limit(Rank rank, Duration floor) const {
  const auto own = pace_.of(rank);
  const OfRank& of = ranks_.at(rank);
  const auto usual = !own && (of.joins || of.steps) ? pace_.slowest() : own;
  return usual ? std::max(floor, Duration(kFactor * *usual)) : limits_.first;
}

bool WaitWatch::is_unusual(Rank rank, const OfRank& of, Timestamp now, Duration floor) const {
  return of.trains && !of.finished && now - of.step > usual_limit(rank, floor);
}

bool WaitWatch::is_held_up(Timestamp now, Duration floor, std::int32_t except) const {
  return std::any_of(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    return entry.second.process != except && is_unusual(entry.first, entry.second, now, floor);
  });
}

std::optional<Duration> WaitWatch::pace_of_process(std::int32_t process) const {
  std::optional<Duration> slowest;
  for (const auto& [rank, of] : ranks_)
    if (const auto pace = pace_.of(rank); of.process == process && pace)
      slowest = std::max(slowest.value_or(*pace), *pace);
  return slowest ? slowest : pace_.slowest();
}

std::optional<std::int64_t> WaitWatch::ask(Timestamp now) {
  if (!is_held_up(now, limits_.floor)) {
    told_.reset();
    return std::nullopt;
  }
  ++question_;
  for (auto& [rank, of] : ranks_)
    if (!std::exchange(of.awaits_answer, true)) of.asked = now;
  return question_;
}

void WaitWatch::add(const WaitReport& report, Timestamp now) {
  const auto found = ranks_.find(report.rank);
  if (found == ranks_.end()) return;
  OfRank& of = found->second;
  of.heard = of.reported_at = now;
  of.report = report;
  of.awaits_answer = false;
  if (awaits_state(report))
    state_at_ = std::max(state_at_, now - Duration(std::max<std::int64_t>(report.waiting_ns, 0)));
}

// Answers age until they are looked at.
std::map<Rank, RankWait> WaitWatch::known(Timestamp now) const {
  std::map<Rank, RankWait> ranks;
  for (const auto& [rank, of] : ranks_) {
    RankWait known;
    known.process = of.process;
    known.finished = of.finished;
    known.silent = now - of.heard;
    if (!of.awaits_answer && of.report) {
      known.report = of.report;
      const std::int64_t age = (now - of.reported_at).count();
      if (known.report->waiting_ns >= 0) known.report->waiting_ns += age;
      if (known.report->computing_ns >= 0) known.report->computing_ns += age;
    }
    ranks.emplace(rank, std::move(known));
  }
  return ranks;
}

// Whether every rank has answered, or had the time to.
bool WaitWatch::all_known(Timestamp now) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [now](const auto& entry) {
    const OfRank& of = entry.second;
    return of.awaits_answer ? now - of.asked >= kAnswerTime : of.report.has_value();
  });
}

// Its first step takes as long as that of a run, from the last part of the state on.
bool WaitWatch::begins_late(const OfRank& of, const WaitChain& chain, Timestamp now) const {
  const bool works = chain.root == WaitChain::Root::computes ||
                     chain.root == WaitChain::Root::reads || chain.root == WaitChain::Root::idle;
  return of.joins && chain.ranks.size() == 1 && works &&
         now - std::max(of.step, state_at_) <= limits_.first;
}

// The rank that has waited longest stands for all.
std::optional<WaitWatch::Finding> WaitWatch::look(Timestamp now) {
  if (question_ == 0 || !all_known(now)) return std::nullopt;
  const std::map<Rank, RankWait> ranks = known(now);
  std::optional<WaitChain> worst;
  Duration length{0};
  bool worst_waits = false;
  for (const auto& [rank, of] : ranks_) {
    if (!is_unusual(rank, of, now)) continue;
    WaitChain chain = find_wait_chain(rank, ranks);
    if (chain.root == WaitChain::Root::delayed || begins_late(of, chain, now)) continue;
    // A rank that waits says more than the root of its wait.
    const bool waits = chain.ranks.size() > 1;
    const Duration silent = now - of.step;
    if (worst && std::make_pair(waits, silent) <= std::make_pair(worst_waits, length)) continue;
    worst = std::move(chain);
    worst_waits = waits;
    length = silent;
  }
  if (!worst) return std::nullopt;
  Finding finding;
  finding.ends = limits_.abort && std::min(length, now - state_at_) >= *limits_.abort;
  finding.is_lost = worst->is_lost();
  const Rank root = worst->ranks.back();
  if (worst->root == WaitChain::Root::no_answer) finding.unreachable = ranks.at(root).process;
  const bool same = told_ && told_->root == root && told_->kind == worst->root;
  const Duration again =
      told_ ? (same ? 2 * told_->length : told_->length + limits_.floor) : Duration::zero();
  if (length < again && !finding.ends) return std::nullopt;
  std::int32_t processes = 0;
  for (const auto& entry : ranks_) processes = std::max(processes, entry.second.process + 1);
  finding.text = text_of(*worst, ranks, processes);
  told_ = Told{root, worst->root, length, finding.text, now};
  return finding;
}

Duration WaitWatch::limit(Duration timeout, Duration first_timeout) const {
  const auto slowest = pace_.slowest();
  return slowest ? std::max(timeout, Duration(kTimeoutFactor * *slowest)) : first_timeout;
}

}  // namespace grapevine
