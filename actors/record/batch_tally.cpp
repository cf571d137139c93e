#include "actors/record/batch_tally.hpp"

#include <algorithm>

namespace grapevine {

void BatchTally::merge(const BatchTally& later) {
  left_out += later.left_out;
  again += later.again;
  const auto append = [](std::vector<Named>& runs, const std::vector<Named>& more) {
    const std::size_t room = kMostNamed - std::min(kMostNamed, runs.size());
    const auto count = static_cast<std::ptrdiff_t>(std::min(room, more.size()));
    runs.insert(runs.end(), more.begin(), more.begin() + count);
  };
  append(left_out_runs, later.left_out_runs);
  append(again_runs, later.again_runs);
}

}  // namespace grapevine
