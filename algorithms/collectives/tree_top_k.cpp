#include "algorithms/collectives/tree_top_k.hpp"

#include <utility>

#include "algorithms/collectives/saved_list.hpp"

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

void TreeTopK::hand_down(std::vector<OutgoingPacked>& out) const {
  const Packed result = to_packed(list_, place_.value_type);
  for (std::int32_t level = level_; level-- > 0;)
    if (const std::int32_t child = place_.position + (1 << level); child < place_.size())
      out.push_back(message(child, kResultRound, result));
}

StateDict TreeTopK::save() const {
  StateDict state;
  state.put("stage", static_cast<std::int64_t>(stage_));
  state.put("level", std::int64_t{level_});
  state.put_all("list", save_packed(to_packed(list_)));
  state.put_all("rejected", save_packed(to_packed(rejected_)));
  return state;
}

// The level of a rank that merges, or waits for the result, is one of this rank's levels.
Expected<void> TreeTopK::load(const StateDict& state, const PackedCheck&) {
  std::int64_t top = 0;
  while (!is_child_at(static_cast<std::int32_t>(top))) ++top;
  const auto stage = state.integer_in("stage", static_cast<std::int64_t>(Stage::up),
                                      static_cast<std::int64_t>(Stage::done));
  const bool climbing = stage && *stage == static_cast<std::int64_t>(Stage::up);
  const auto level = state.integer_in("level", climbing ? 0 : top, top);
  for (const auto* field : {&stage, &level})
    if (!*field) return field->error();
  for (const auto& [name, list] :
       {std::pair<const char*, SparseVector*>{"list", &list_}, {"rejected", &rejected_}}) {
    auto loaded = load_list(state.under(name), place_.d);
    if (!loaded) return loaded.error();
    *list = std::move(*loaded);
  }
  stage_ = static_cast<Stage>(*stage);
  level_ = static_cast<std::int32_t>(*level);
  return {};
}

}  // namespace grapevine
