#include "actors/run/control/run_board.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace grapevine {
namespace {

// Steps of a rank from which its rate is computed, at most: the newest ones.
constexpr std::size_t kMarks = 64;
constexpr std::size_t kMostChains = 8;

}  // namespace

void RunBoard::on_step(const StepReport& report, Timestamp now) {
  OfRank& of = ranks_[report.rank];
  of.step = report;
  of.steps = report.step + 1;
  of.heard = now;
  const std::int64_t samples = (of.marks.empty() ? 0 : of.marks.back().samples) + report.samples;
  of.marks.push_back({now, of.steps, samples});
  if (of.marks.size() > kMarks) of.marks.pop_front();
  goodput_.add(report.rank, report.samples, report.batch_time_s);
}

void RunBoard::on_figures(const RankFigures& figures, Timestamp now) {
  OfRank& of = ranks_[figures.rank];
  const Ledger& before = of.figures.ledger;
  total_.produced += figures.ledger.produced - before.produced;
  total_.committed += figures.ledger.committed - before.committed;
  of.figures = figures;
  of.heard = now;
}

void RunBoard::on_lost(Rank rank) { unanswered_.erase(rank); }

// Its figures begin anew; RunState::former has those until now.
void RunBoard::on_returned(Rank rank) { ranks_.erase(rank); }

void RunBoard::add(RunEvent event) {
  events_.push_back(std::move(event));
  if (events_.size() > kMostEvents) events_.pop_front();
}

std::int64_t RunBoard::ask(const std::set<Rank>& ranks, Timestamp now) {
  for (auto& entry : ranks_) entry.second.report.reset();
  unanswered_ = ranks;
  asked_ = now;
  return ++question_;
}

bool RunBoard::add(const WaitReport& report, Timestamp now) {
  if (report.question != question_ || unanswered_.erase(report.rank) == 0) return false;
  OfRank& of = ranks_[report.rank];
  of.report = report;
  of.heard = now;
  return true;
}

// Since it was last heard of; of a rank that never was: since it was asked.
Duration RunBoard::silence_of(Rank rank, Timestamp now) const {
  const auto found = ranks_.find(rank);
  if (found == ranks_.end() || !found->second.heard) return now - asked_;
  return now - *found->second.heard;
}

void RunBoard::add_rates(RankStatus& status, const OfRank& of, Timestamp now) {
  if (of.marks.size() < 2) return;
  const Mark &first = of.marks.front(), &last = of.marks.back();
  const auto intervals = static_cast<std::int64_t>(of.marks.size()) - 1;
  const Duration usual = (last.at - first.at) / intervals;
  // A rank that has stopped becomes slower and slower.
  const Timestamp end = now - last.at > 2 * usual ? now : last.at;
  const double seconds = to_seconds(end - first.at);
  if (seconds <= 0) return;
  status.steps_per_s = static_cast<double>(last.steps - first.steps) / seconds;
  status.samples_per_s = static_cast<double>(last.samples - first.samples) / seconds;
}

RankStatus RunBoard::status_of(Rank rank, const RunState& state, Timestamp now) const {
  RankStatus status;
  status.rank = rank;
  status.process = state.process_of[static_cast<std::size_t>(rank)];
  status.serves = rank >= state.workers;
  status.lost = state.lost.count(rank) > 0;
  status.vacant = state.vacant.count(rank) > 0;
  status.finished = !status.lost && state.finished.count(rank) > 0;
  status.answers = !status.lost && unanswered_.count(rank) == 0;
  if (!status.answers && !status.lost) status.silent_s = to_seconds(silence_of(rank, now));
  const auto found = ranks_.find(rank);
  if (found == ranks_.end()) return status;
  const OfRank& of = found->second;
  status.steps = of.steps;
  if (of.steps > 0) {
    const StepReport& step = of.step;
    status.epoch = step.epoch;
    status.loss = step.loss;
    status.lr = step.lr;
    status.staleness = step.staleness;
    status.step_s = step.batch_time_s;
    status.exchange_s = step.exchange_time_s;
  }
  if (!status.lost && !status.finished) add_rates(status, of, now);
  status.wait = of.report;
  status.ledger = of.figures.ledger;
  status.sent_bytes = of.figures.sent_bytes;
  status.waited_ns = of.figures.waited_ns;
  return status;
}

RankWait RunBoard::wait_of(Rank rank, const RunState& state, Timestamp now) const {
  RankWait wait;
  wait.process = state.process_of[static_cast<std::size_t>(rank)];
  wait.finished = state.finished.count(rank) > 0;
  wait.silent = silence_of(rank, now);
  if (const auto found = ranks_.find(rank); found != ranks_.end())
    wait.report = found->second.report;
  return wait;
}

// One for each root: the longest wait stands for all that lead there.
std::vector<std::string> RunBoard::chains(const RunState& state, Timestamp now) const {
  std::map<Rank, RankWait> ranks;
  for (Rank rank = 0; rank < static_cast<Rank>(state.process_of.size()); ++rank)
    if (state.lost.count(rank) == 0) ranks.emplace(rank, wait_of(rank, state, now));
  std::map<Rank, std::pair<Duration, WaitChain>> longest;
  for (const auto& [rank, wait] : ranks) {
    WaitChain chain = find_wait_chain(rank, ranks);
    const Duration length = wait.report ? Duration(wait.report->waiting_ns) : wait.silent;
    const bool stalled = chain.root == WaitChain::Root::no_answer;
    if (chain.ranks.size() == 1 && !stalled) continue;
    if (length < kShownWait && !stalled) continue;
    auto& of_root = longest[chain.ranks.back()];
    // A rank that waits says more than the root alone.
    const bool better = of_root.second.ranks.size() < 2 || length > of_root.first;
    if (of_root.second.ranks.empty() || (better && chain.ranks.size() > 1))
      of_root = {length, std::move(chain)};
  }
  const auto processes = *std::max_element(state.process_of.begin(), state.process_of.end()) + 1;
  std::vector<std::string> texts;
  for (const auto& [root, found] : longest)
    if (texts.size() < kMostChains) texts.push_back(text_of(found.second, ranks, processes));
  return texts;
}

// What a lost rank had produced and not applied. A server applies what others have produced.
std::int64_t RunBoard::destroyed_of(const Ledger& ledger) {
  return ledger.produced == 0 ? 0 : std::max<std::int64_t>(0, ledger.pending());
}

// Beside those of the present ranks.
void RunBoard::add_totals(RunStatus& status, const RunState& state) const {
  for (const RankStatus& of : status.ranks)
    if (of.lost) status.destroyed += destroyed_of(of.ledger);
  for (const FormerLife& life : state.former) {
    status.destroyed += destroyed_of(life.ledger);
    status.rested.merge(life.ledger);
  }
  const auto ranks = static_cast<Rank>(state.process_of.size());
  for (auto at = ranks_.lower_bound(ranks); at != ranks_.end(); ++at)
    status.rested.merge(at->second.figures.ledger);
}

RunStatus RunBoard::status(const RunState& state, Timestamp now) const {
  RunStatus status;
  status.stage = state.stage;
  status.stopping = state.stopping;
  status.time_s = to_seconds(now);
  status.workers = state.workers;
  status.servers = static_cast<std::int32_t>(state.process_of.size()) - state.workers;
  status.view = state.view;
  status.changes_members = state.changes_members;
  status.steps = state.horizon.steps;
  status.epochs = state.horizon.epoch_of(state.horizon.steps);
  status.checkpoint = state.checkpoint;
  status.writes_checkpoint = state.writes_checkpoint;
  status.settings = state.settings;
  const auto vacant = static_cast<std::int64_t>(state.vacant.size());
  const double goodput = goodput_.ratio(total_, workers_ - vacant);
  if (std::isfinite(goodput)) status.goodput = goodput;
  for (Rank rank = 0; rank < static_cast<Rank>(state.process_of.size()); ++rank) {
    status.ranks.push_back(status_of(rank, state, now));
    const RankStatus& of = status.ranks.back();
    status.processes = std::max(status.processes, of.process + 1);
    if (std::isfinite(of.samples_per_s)) status.samples_per_s += of.samples_per_s;
    const auto found = ranks_.find(rank);
    if (of.serves || of.lost || found == ranks_.end() || of.steps == 0) continue;
    const double done = found->second.step.epochs_done;
    if (!(status.epochs_done <= done)) status.epochs_done = done;
  }
  add_totals(status, state);
  status.queued_bytes.assign(static_cast<std::size_t>(status.processes), -1);
  for (const RankStatus& of : status.ranks) {
    if (!of.answers || !of.wait) continue;
    std::int64_t& queued = status.queued_bytes[static_cast<std::size_t>(of.process)];
    queued = std::max(queued, of.wait->queued_bytes);
  }
  if (!state.peers.empty()) status.waits = chains(state, now);
  status.events.assign(events_.begin(), events_.end());
  return status;
}

}  // namespace grapevine
