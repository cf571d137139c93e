// LiveMetrics: the metrics that come from RankFigures: staleness, contributions, waits, bytes.
#pragma once
#include <prometheus/histogram.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "actors/protocol/supervisor.hpp"
#include "actors/record/goodput.hpp"
#include "apps/monitoring/metric_families.hpp"

namespace grapevine {

// The number of series is bounded: staleness and contributions are summed over the ranks; figures
// of pairs of ranks have a label of each only up to kMostRanksWithPairs ranks. Not thread-safe, but
// the registry may be read meanwhile.
class LiveMetrics {
 public:
  // `ranks`: servers included.
  LiveMetrics(prometheus::Registry& registry, std::int64_t workers, std::int64_t ranks);

  void on_step(const StepReport& report);
  // A second figure of a rank replaces the first. Not called for a lost rank.
  void on_figures(const RankFigures& figures);
  void on_rank_lost(Rank rank);
  void on_rank_returned(Rank rank);

 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  using Gauges = prometheus::Family<prometheus::Gauge>;

  void add_staleness(const Ledger& before, const Ledger& now);
  void add_contributions(const Ledger& before, const Ledger& now);
  void add_pairs(const RankFigures& before, const RankFigures& now);
  std::string label_of(Rank other) const;
  void show_pending();
  void show_goodput();

  const std::int64_t workers_, ranks_;
  prometheus::Histogram& staleness_;
  Counters& contributions_;
  prometheus::Counter &produced_, &applied_, &dropped_, &destroyed_;
  prometheus::Gauge& pending_;
  Counters& wait_seconds_;
  Counters& sent_bytes_;
  Gauges& view_number_;
  prometheus::Gauge& lost_ranks_;
  Gauges& goodput_ratio_;

  Goodput goodput_;
  std::map<Rank, RankFigures> newest_;
  std::set<Rank> lost_;
  Ledger total_;  // its produced, committed and dropped contributions: of all ranks, lost ones too
  std::int64_t destroyed_count_ = 0;
};

}  // namespace grapevine
