// UsualPace: the time that each rank usually takes for a step, learned from the run.
#pragma once
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "messages/ids.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Of a rank it is the larger one of
//   the 95th percentile of its newest 64 steps: single long ones do not count, and a pace that
//     changes is learned within 64 steps;
//   half of its third longest step ever: pauses that recur are usual, however rare.
// Not thread-safe.
class UsualPace {
 public:
  // A step or a silence of so many usual steps is unusual.
  static constexpr int kUnusualFactor = 5;

  // A step took so long, from the end of the rank's step before it.
  void add(Rank rank, Duration step);
  // None before its first step.
  std::optional<Duration> of(Rank rank) const;
  // Of the slowest rank; none before the first step of any.
  std::optional<Duration> slowest() const;

 private:
  static constexpr std::size_t kNewest = 64;
  static constexpr std::size_t kLongest = 3;

  struct Steps {
    std::deque<Duration> newest;
    std::vector<Duration> longest;  // descending, kLongest at most
  };

  static Duration usual(const Steps& steps);

  std::map<Rank, Steps> steps_;
};

}  // namespace grapevine
