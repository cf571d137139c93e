// One rank of `grapevine bench partial`, over any transport.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/collectives/activation.hpp"
#include "apps/bench/bench_rank.hpp"

namespace grapevine {

struct PartialPolicy {
  std::string name;
  Trigger::Kind kind = Trigger::Kind::first_ready;
  std::int32_t quorum = 1;
};

struct PartialBenchPlan {
  BenchPlan plan;
  std::vector<PartialPolicy> policies;
  std::vector<Duration> skews;  // rank r is ready at r times this
};

struct PartialTimes {
  std::string policy;
  std::int64_t bytes = 0;
  Duration skew{0};
  std::vector<double> seconds;  // by iteration: the mean wait of the ranks
  double active = 0;            // mean number of ranks in the sum
};
using OnPartialTimes = std::function<void(PartialTimes)>;

// A rank's wait: from the moment at which it is ready until it has the sum; 0 where the sum was
// there before. All policies take turns within an iteration, so that a disturbance of the machine
// meets all alike. Every sum is checked against the number of ranks in it. `on_times` is called on
// rank 0 only; that of run() is not used.
std::shared_ptr<BenchRank> make_partial_rank(Transport& transport, Rank rank,
                                             const PartialBenchPlan& plan, OnPartialTimes on_times);

}  // namespace grapevine
