// NewestFigures: the figures of ranks on their way to the Reporter.
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/record/rank_figures.hpp"

namespace grapevine {

// At most one of each rank waits, the newest one. Thread-safe.
class NewestFigures {
 public:
  // Whether none of the rank has waited.
  bool put(const RankFigures& figures) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.insert_or_assign(figures.rank, figures).second;
  }
  std::optional<RankFigures> take(Rank rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto node = waiting_.extract(rank);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }

 private:
  std::mutex mutex_;  // guards waiting_
  std::map<Rank, RankFigures> waiting_;
};

}  // namespace grapevine
