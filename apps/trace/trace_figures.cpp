#include "apps/trace/trace_figures.hpp"

#include <algorithm>

namespace grapevine {

StalenessFigures figures_of(const StalenessCounts& counts) {
  std::int64_t total = 0;
  double sum = 0;
  for (const auto& [value, count] : counts) {
    total += count;
    sum += static_cast<double>(value) * static_cast<double>(count);
  }
  StalenessFigures figures;
  if (total == 0) return figures;
  figures.mean = sum / static_cast<double>(total);
  figures.max = counts.rbegin()->first;
  const auto at_share = [&](std::int64_t percent) {
    std::int64_t seen = 0;
    for (const auto& [value, count] : counts) {
      seen += count;
      if (100 * seen >= percent * total) return value;
    }
    return counts.rbegin()->first;
  };
  figures.p50 = at_share(50);
  figures.p99 = at_share(99);
  return figures;
}

TraceFigures::TraceFigures(std::int32_t ranks)
    : ranks_(static_cast<std::size_t>(ranks)), waits_(ranks) {}

void TraceFigures::add(const TraceRecord& record) {
  trained_ns_ = std::max(trained_ns_, clock_.of(record));
  TracedRank& of_rank = ranks_[static_cast<std::size_t>(record.rank)];
  if (const auto wait = waits_.add(record))
    ranks_[static_cast<std::size_t>(wait->rank)].waited_ns += wait->duration_ns();
  switch (record.kind) {
    case EventKind::produced:
      ++of_rank.contributions.produced;
      break;
    case EventKind::committed:
      ++of_rank.contributions.applied;
      break;
    case EventKind::dropped:
      ++of_rank.contributions.dropped;
      break;
    case EventKind::step_done:
      ++of_rank.steps;
      break;
    case EventKind::sent:
      add_sent(record);
      break;
    case EventKind::received:
      add_receipt(record);
      break;
    case EventKind::applied:
      ++of_rank.staleness[record.staleness];
      if (record.peer < 0) break;
      ++edge(record.peer, record.rank).applied;
      edge(record.peer, record.rank).staleness_sum += static_cast<double>(record.staleness);
      break;
    case EventKind::resumed:
      table_.resumed(record);
      break;
    case EventKind::view:
      add_view(record);
      break;
    default:
      break;
  }
}

// A rank that takes part again does so without what it had.
void TraceFigures::add_view(const TraceRecord& record) {
  if (record.peer >= 0 && record.peer != record.rank) lost_.insert(record.peer);
  if (record.peer != record.rank) return;
  lost_.erase(record.rank);
  ContributionFigures& of = ranks_[static_cast<std::size_t>(record.rank)].contributions;
  of.destroyed += of.open();
}

void TraceFigures::add_sent(const TraceRecord& record) {
  table_.sent(record);
  ++ranks_[static_cast<std::size_t>(record.rank)].messages;
  EdgeFigures& of_edge = edge(record.rank, record.peer);
  KindFigures& of_kind = kinds_[static_cast<std::size_t>(record.payload)];
  ++of_edge.messages;
  ++of_kind.messages;
  of_edge.bytes += record.bytes;
  of_kind.bytes += record.bytes;
}

void TraceFigures::add_receipt(const TraceRecord& record) {
  const auto message = table_.received(record);
  if (!message || message->of_checkpoint) return;
  edge(record.peer, record.rank).latency_ns.add(message->latency_ns());
}

EdgeFigures& TraceFigures::edge(Rank from, Rank to) {
  const auto key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 |
                   static_cast<std::uint32_t>(to);
  EdgeFigures& edge = edges_[key];
  edge.from = from;
  edge.to = to;
  return edge;
}

std::int64_t TraceFigures::messages() const {
  std::int64_t sum = 0;
  for (const KindFigures& kind : kinds_) sum += kind.messages;
  return sum;
}

std::uint64_t TraceFigures::bytes() const {
  std::uint64_t sum = 0;
  for (const KindFigures& kind : kinds_) sum += kind.bytes;
  return sum;
}

std::int64_t TraceFigures::applied() const {
  std::int64_t sum = 0;
  for (const TracedRank& rank : ranks_)
    for (const auto& [value, count] : rank.staleness) sum += count;
  return sum;
}

StalenessCounts TraceFigures::staleness() const {
  StalenessCounts all;
  for (const TracedRank& rank : ranks_)
    for (const auto& [value, count] : rank.staleness) all[value] += count;
  return all;
}

ContributionFigures TraceFigures::contributions() const {
  ContributionFigures all;
  for (const TracedRank& rank : ranks()) {
    all.produced += rank.contributions.produced;
    all.applied += rank.contributions.applied;
    all.pending += rank.contributions.pending;
    all.dropped += rank.contributions.dropped;
    all.destroyed += rank.contributions.destroyed;
  }
  return all;
}

std::vector<TracedRank> TraceFigures::ranks() const {
  std::vector<TracedRank> all = ranks_;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    ContributionFigures& of = all[rank].contributions;
    const bool lost = lost_.count(static_cast<Rank>(rank)) > 0;
    (lost ? of.destroyed : of.pending) += of.open();
  }
  return all;
}

std::vector<EdgeFigures> TraceFigures::edges() const {
  std::vector<EdgeFigures> all;
  for (const auto& of_edge : edges_) all.push_back(of_edge.second);
  std::sort(all.begin(), all.end(), [](const EdgeFigures& a, const EdgeFigures& b) {
    return a.from != b.from ? a.from < b.from : a.to < b.to;
  });
  return all;
}

std::vector<std::pair<PayloadKind, KindFigures>> TraceFigures::kinds() const {
  std::vector<std::pair<PayloadKind, KindFigures>> all;
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind)
    if (kinds_[kind].messages > 0) all.emplace_back(static_cast<PayloadKind>(kind), kinds_[kind]);
  return all;
}

}  // namespace grapevine
