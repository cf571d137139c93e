#include "apps/monitoring/live_metrics.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "apps/monitoring/metrics_endpoint.hpp"

namespace grapevine {
namespace {

using prometheus::Counter;
using prometheus::Histogram;
using prometheus::Registry;

// Steps, or versions of a server.
const Histogram::BucketBoundaries kStaleness = {0,  1,  2,  3,  4,   6,   8,
                                                12, 16, 32, 64, 128, 256, 1024};

constexpr double kNanoseconds = 1e9;  // in a second

Histogram& staleness_histogram(Registry& registry) {
  return prometheus::BuildHistogram()
      .Name("grapevine_update_staleness")
      .Help("Staleness of applied updates, in steps or versions of a server, all ranks.")
      .Register(registry)
      .Add({}, kStaleness);
}

// A figure that another process sends may shrink; a counter must not.
void increase(Counter& counter, double value) {
  if (value > 0) counter.Increment(value);
}

template <class Key, class Value>
Value value_at(const std::map<Key, Value>& values, Key key) {
  const auto found = values.find(key);
  return found == values.end() ? Value{} : found->second;
}

}  // namespace

LiveMetrics::LiveMetrics(Registry& registry, std::int64_t workers, std::int64_t ranks)
    : workers_(workers),
      ranks_(ranks),
      staleness_(staleness_histogram(registry)),
      contributions_(counter_family(
          registry, "grapevine_contributions_total",
          "Gradients of workers, all ranks: produced; applied to a model; dropped; destroyed by "
          "the loss of their rank before they were applied.")),
      produced_(contributions_.Add({{"state", "produced"}})),
      applied_(contributions_.Add({{"state", "applied"}})),
      dropped_(contributions_.Add({{"state", "dropped"}})),
      destroyed_(contributions_.Add({{"state", "destroyed"}})),
      pending_(gauge_family(registry, "grapevine_contributions",
                            "Gradients of workers, all ranks: produced and not yet applied.")
                   .Add({{"state", "pending"}})),
      wait_seconds_(counter_family(
          registry, "grapevine_wait_seconds_total",
          "Time that the rank has waited, by the rank whose message ended the wait; none: no "
          "message did; all: not kept by rank.")),
      sent_bytes_(counter_family(registry, "grapevine_sent_bytes_total",
                                 "Bytes that a rank has sent to another; all: not kept by rank.")),
      view_number_(gauge_family(registry, "grapevine_view_number",
                                "Changes of the membership that the rank has seen in this run.")),
      lost_ranks_(gauge_family(registry, "grapevine_lost_ranks",
                               "Ranks that were lost while the others continued.")
                      .Add({})),
      goodput_ratio_(gauge_family(registry, "grapevine_goodput_ratio",
                                  "Samples that count over samples possible at the best rate "
                                  "observed, 0 to 1.")) {}

void LiveMetrics::on_step(const StepReport& report) {
  goodput_.add(report.rank, report.samples, report.batch_time_s);
}

void LiveMetrics::on_figures(const RankFigures& figures) {
  if (lost_.count(figures.rank) > 0) return;
  RankFigures& before = newest_[figures.rank];
  add_staleness(before.ledger, figures.ledger);
  add_contributions(before.ledger, figures.ledger);
  add_pairs(before, figures);
  view_number_.Add({{"rank", std::to_string(figures.rank)}}).Set(static_cast<double>(figures.view));
  before = figures;
  show_pending();
  show_goodput();
}

// The contributions that it had not applied are lost with it.
void LiveMetrics::on_rank_lost(Rank rank) {
  if (!lost_.insert(rank).second) return;
  lost_ranks_.Set(static_cast<double>(lost_.size()));
  const std::int64_t destroyed =
      std::max<std::int64_t>(0, value_at(newest_, rank).ledger.pending());
  destroyed_count_ += destroyed;
  increase(destroyed_, static_cast<double>(destroyed));
  show_pending();
}

void LiveMetrics::on_rank_returned(Rank rank) {
  if (lost_.erase(rank) == 0) return;
  lost_ranks_.Set(static_cast<double>(lost_.size()));
  newest_.erase(rank);
}

void LiveMetrics::add_staleness(const Ledger& before, const Ledger& now) {
  std::vector<double> buckets(kStaleness.size() + 1);
  double sum = 0;
  for (const auto& [staleness, count] : now.staleness) {
    const auto more = static_cast<double>(count - value_at(before.staleness, staleness));
    if (more <= 0) continue;
    const auto value = static_cast<double>(staleness);
    const auto bucket = std::lower_bound(kStaleness.begin(), kStaleness.end(), value);
    buckets[static_cast<std::size_t>(bucket - kStaleness.begin())] += more;
    sum += more * value;
  }
  staleness_.ObserveMultiple(buckets, sum);
}

void LiveMetrics::add_contributions(const Ledger& before, const Ledger& now) {
  increase(produced_, static_cast<double>(now.produced - before.produced));
  increase(applied_, static_cast<double>(now.committed - before.committed));
  increase(dropped_, static_cast<double>(now.dropped - before.dropped));
  total_.produced += now.produced - before.produced;
  total_.committed += now.committed - before.committed;
  total_.dropped += now.dropped - before.dropped;
}

void LiveMetrics::add_pairs(const RankFigures& before, const RankFigures& now) {
  const std::string rank = std::to_string(now.rank);
  for (const auto& [awaited, time_ns] : now.waited_ns)
    increase(wait_seconds_.Add({{"rank", rank}, {"awaited", label_of(awaited)}}),
             static_cast<double>(time_ns - value_at(before.waited_ns, awaited)) / kNanoseconds);
  for (const auto& [receiver, bytes] : now.sent_bytes)
    increase(
        sent_bytes_.Add({{"from", rank}, {"to", label_of(receiver)}}),
        static_cast<double>(bytes) - static_cast<double>(value_at(before.sent_bytes, receiver)));
}

std::string LiveMetrics::label_of(Rank other) const {
  if (ranks_ > kMostRanksWithPairs) return "all";
  return other == RankFigures::kNobody ? "none" : std::to_string(other);
}

void LiveMetrics::show_pending() {
  pending_.Set(static_cast<double>(std::max<std::int64_t>(0, total_.pending() - destroyed_count_)));
}

void LiveMetrics::show_goodput() {
  const double ratio = goodput_.ratio(total_, workers_);
  if (std::isfinite(ratio)) goodput_ratio_.Add({}).Set(ratio);
}

}  // namespace grapevine
