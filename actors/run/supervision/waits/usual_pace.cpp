#include "actors/run/supervision/waits/usual_pace.hpp"

#include <algorithm>
#include <functional>

namespace grapevine {

void UsualPace::add(Rank rank, Duration step) {
  Steps& steps = steps_[rank];
  steps.newest.push_back(step);
  if (steps.newest.size() > kNewest) steps.newest.pop_front();
  std::vector<Duration>& longest = steps.longest;
  longest.insert(std::upper_bound(longest.begin(), longest.end(), step, std::greater<>()), step);
  if (longest.size() > kLongest) longest.pop_back();
}

std::optional<Duration> UsualPace::of(Rank rank) const {
  const auto found = steps_.find(rank);
  return found == steps_.end() ? std::nullopt : std::optional<Duration>(usual(found->second));
}

std::optional<Duration> UsualPace::slowest() const {
  std::optional<Duration> slowest;
  for (const auto& of_rank : steps_)
    slowest = std::max(slowest.value_or(Duration::zero()), usual(of_rank.second));
  return slowest;
}

Duration UsualPace::usual(const Steps& steps) {
  std::vector<Duration> sorted(steps.newest.begin(), steps.newest.end());
  const std::size_t place = (sorted.size() * 95 + 99) / 100 - 1;  // of the percentile
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(place),
                   sorted.end());
  const Duration recurring =
      steps.longest.size() < kLongest ? Duration::zero() : steps.longest.back() / 2;
  return std::max(sorted[place], recurring);
}

}  // namespace grapevine
