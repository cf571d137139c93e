#include "apps/trace/usual_times.hpp"

#include <algorithm>
#include <utility>

namespace grapevine {
namespace {

constexpr std::int64_t kLeastSlowNs = 1'000'000;
constexpr std::int64_t kSpreads = 16;
// With fewer times of its own, a rank or link is compared with the others.
constexpr std::int64_t kEnoughTimes = 8;

std::int64_t median_of_times(std::vector<std::int64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::int64_t spread_of(const TimeHistogram& times) {
  return times.median_ns() - times.quantile_ns(0.25);
}

}  // namespace

UsualTimes::UsualTimes(const RunLayout& layout, std::int64_t least_ns)
    : layout_(layout),
      least_ns_(least_ns),
      steps_(static_cast<std::size_t>(layout.ranks())),
      waits_(steps_) {}

// ---- keys ----

// kind, payload, rank, peer; a rank has fewer than 28 bits.
UsualTimes::Key UsualTimes::key_of(const Span& span) const {
  const auto kind = static_cast<Key>(span.kind), payload = static_cast<Key>(span.payload);
  const auto ranks = static_cast<Key>(layout_.ranks()) + 1;
  const auto pair = static_cast<Key>(span.rank) * ranks + static_cast<Key>(span.peer + 1);
  return (pair << 8) | (payload << 3) | kind;
}

UsualTimes::Part UsualTimes::part_of(Key key) const {
  const auto ranks = static_cast<Key>(layout_.ranks()) + 1;
  const Key pair = key >> 8;
  return {static_cast<SpanKind>(key & 7), static_cast<Rank>(pair / ranks),
          static_cast<Rank>(pair % ranks) - 1, static_cast<PayloadKind>((key >> 3) & 31)};
}

// ---- the first pass ----

void UsualTimes::add(const Span& span) {
  if (span.kind == SpanKind::start || span.kind == SpanKind::timer ||
      span.kind == SpanKind::members)
    return;
  if (span.first && span.kind == SpanKind::compute) first_computes_.push_back(span.length_ns());
  usual_[key_of(span)].times.add(span.length_ns());
}

void UsualTimes::add_step(Rank rank, std::int64_t length_ns) {
  steps_[static_cast<std::size_t>(rank)].add(length_ns);
}

void UsualTimes::add_wait(Rank rank, std::int64_t length_ns) {
  waits_[static_cast<std::size_t>(rank)].add(length_ns);
}

std::int64_t UsualTimes::limit_of(std::int64_t usual_ns, std::int64_t spread_ns) const {
  return std::max({least_ns_, usual_ns, kSpreads * spread_ns});
}

// 0: one process, 1: one host, 2: two hosts.
int UsualTimes::distance(const Part& part) const {
  if (part.peer < 0) return 0;
  const auto differ = [&part](const std::vector<std::int32_t>& place) {
    const auto from = static_cast<std::size_t>(part.rank), to = static_cast<std::size_t>(part.peer);
    return std::max(from, to) < place.size() && place[from] != place[to];
  };
  return differ(layout_.host_of) ? 2 : differ(layout_.process_of) ? 1 : 0;
}

void UsualTimes::finish() {
  usual_first_ns_ = median_of_times(first_computes_);
  for (const auto& [key, usual] : usual_) alike_[alike(part_of(key))].times.add(usual.times);
  // In 1/1000 of the median; the quartile of a few times varies, the median of them all less.
  std::map<Alike, std::vector<std::int64_t>> spreads;
  for (const auto& [key, usual] : usual_)
    if (const std::int64_t median = usual.times.median_ns();
        median > 0 && usual.times.count() >= kEnoughTimes)
      spreads[alike(part_of(key))].push_back(1000 * spread_of(usual.times) / median);
  const auto finish = [this, &spreads](Usual& usual, const TimeHistogram& times,
                                       const Alike& kind) {
    usual.usual_ns = usual.ordinary_ns = times.median_ns();
    const std::int64_t common = usual.usual_ns * median_of_times(spreads[kind]) / 1000;
    usual.limit_ns = limit_of(usual.usual_ns, std::max(spread_of(times), common));
  };
  for (auto& [kind, usual] : alike_) finish(usual, usual.times, kind);
  for (auto& [key, usual] : usual_) {
    const bool has_enough = usual.times.count() >= kEnoughTimes;
    const Alike kind = alike(part_of(key));
    finish(usual, has_enough ? usual.times : alike_[kind].times, kind);
  }
  find_slow();
}

// The median of the medians of all others, by removal of one value from a sorted list.
void UsualTimes::find_slow() {
  std::map<Alike, std::vector<std::int64_t>> medians;
  for (const auto& [key, usual] : usual_) {
    if (usual.times.count() >= kEnoughTimes) medians[alike(part_of(key))].push_back(usual.usual_ns);
  }
  for (auto& of_kind : medians) std::sort(of_kind.second.begin(), of_kind.second.end());
  for (auto& [key, usual] : usual_) {
    const Part part = part_of(key);
    const auto& all = medians[alike(part)];
    if (usual.times.count() < kEnoughTimes || all.size() < 2) continue;
    const auto own = static_cast<std::size_t>(
        std::lower_bound(all.begin(), all.end(), usual.usual_ns) - all.begin());
    const std::size_t middle = (all.size() - 2) / 2;
    const std::int64_t others = all[middle < own ? middle : middle + 1];
    const std::int64_t by = usual.usual_ns - others;
    const std::int64_t factor = part.kind == SpanKind::link ? 4 : 1;  // halves
    if (by > kLeastSlowNs && 2 * by > factor * others) usual.ordinary_ns = others;
  }
}

// ---- the second pass ----

const UsualTimes::Usual* UsualTimes::find(const Span& span) const {
  const Key key = key_of(span);
  if (const auto own = usual_.find(key); own != usual_.end()) return &own->second;
  const auto other = alike_.find(alike(part_of(key)));
  return other == alike_.end() ? nullptr : &other->second;
}

Excess UsualTimes::excess(const Span& span, std::int64_t active_ns) const {
  Excess excess;
  excess.is_unusual = span.kind == SpanKind::members;  // no wait for a lost rank is usual
  const Usual* found = find(span);
  if (found == nullptr) return excess;
  const Usual& usual = *found;
  excess.usual_ns = usual.usual_ns;
  excess.ordinary_ns = usual.ordinary_ns;
  std::int64_t limit_ns = usual.limit_ns;
  // All first gradients take long: they are compared with each other.
  if (span.first && span.kind == SpanKind::compute && usual_first_ns_ > excess.usual_ns) {
    excess.usual_ns = excess.ordinary_ns = usual_first_ns_;
    limit_ns = std::max(limit_ns, limit_of(usual_first_ns_, 0));
  }
  excess.is_unusual = active_ns - excess.usual_ns > limit_ns;
  return excess;
}

std::int64_t UsualTimes::usual_wait_ns(Rank rank) const {
  return waits_[static_cast<std::size_t>(rank)].median_ns();
}

std::int64_t UsualTimes::usual_step_ns(Rank rank) const {
  return steps_[static_cast<std::size_t>(rank)].median_ns();
}

}  // namespace grapevine
