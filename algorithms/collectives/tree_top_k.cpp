#include "algorithms/collectives/tree_top_k.hpp"

#include <utility>

namespace grapevine {
namespace {

constexpr std::int32_t kResultRound = 64;  // no tree has so many levels

}  // namespace

std::vector<OutgoingPacked> TreeTopK::start(Packed own, PackedInbox& inbox) {
  list_ = list_of(own);
  stage_ = Stage::up;
  return advance(inbox);
}

std::vector<OutgoingPacked> TreeTopK::advance(PackedInbox& inbox) {
  std::vector<OutgoingPacked> out;
  if (stage_ == Stage::up && climb(inbox)) {
    stage_ = Stage::down;
    if (place_.position > 0) out.push_back(message(place_.position - (1 << level_), level_, list_));
  }
  if (stage_ != Stage::down) return out;
  if (place_.position > 0) {
    auto result = take_list(inbox, kResultRound, place_.position - (1 << level_));
    if (!result) return out;
    list_ = std::move(*result);
  }
  hand_down(out);
  stage_ = Stage::done;
  return out;
}

// The root is no child at any level: it has merged all once 2^level reaches P.
bool TreeTopK::is_child_at(std::int32_t level) const {
  return place_.position > 0 ? (place_.position >> level & 1) != 0 : 1 << level >= place_.size();
}

// Merges the lists that have arrived; true once the whole subtree is merged.
bool TreeTopK::climb(PackedInbox& inbox) {
  for (; !is_child_at(level_); ++level_) {
    const std::int32_t child = place_.position + (1 << level_);
    if (child >= place_.size()) continue;
    auto theirs = take_list(inbox, level_, child);
    if (!theirs) return false;
    SparseVector dropped;
    list_ = keep_top_k(merge(list_, *theirs), place_.quotas, &dropped);
    dropped = merge(dropped, round_values(list_, place_.value_type));
    rejected_ = merge(rejected_, dropped);
  }
  return true;
}

// The child at the level that is not merged, or the parent that has the result.
std::vector<std::int32_t> TreeTopK::sources() const {
  const std::int32_t step = 1 << level_;
  return {stage_ == Stage::up ? place_.position + step : place_.position - step};
}

void TreeTopK::hand_down(std::vector<OutgoingPacked>& out) const {
  const Packed result = to_packed(list_, place_.value_type);
  for (std::int32_t level = level_; level-- > 0;)
    if (const std::int32_t child = place_.position + (1 << level); child < place_.size())
      out.push_back(message(child, kResultRound, result));
}

// The level of a rank that merges, or waits for the result, is one of this rank's levels.
void TreeTopK::fields(Archive& a, const PackedCheck&) {
  std::int32_t top = 0;
  while (!is_child_at(top)) ++top;
  a.whole("stage", stage_, static_cast<std::int64_t>(Stage::up),
          static_cast<std::int64_t>(Stage::done));
  a.whole("level", level_, stage_ == Stage::up ? 0 : top, top);
  list_field(a, "list", list_);
  list_field(a, "rejected", rejected_);
}

}  // namespace grapevine
