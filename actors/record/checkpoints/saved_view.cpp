#include "actors/record/checkpoints/saved_view.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "algorithms/wiring/make_parts.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

constexpr std::int64_t kMostRanks = 1'000'000;

bool is_ascending(const std::vector<std::int64_t>& members) {
  const auto unordered =
      std::adjacent_find(members.begin(), members.end(), [](auto a, auto b) { return a >= b; });
  return !members.empty() && unordered == members.end() && members.front() >= 0 &&
         members.back() < kMostRanks;
}

// None where the run has no hierarchy.
Expected<std::vector<Rank>> load_heads(const StateDict& state,
                                       const std::vector<std::int64_t>& members) {
  if (state.entries().count("heads") == 0) return std::vector<Rank>();
  const auto heads = state.list("heads");
  if (!heads) return heads.error();
  if (!is_ascending(*heads) ||
      !std::includes(members.begin(), members.end(), heads->begin(), heads->end()))
    return bad_input("view.heads is no ascending list of members");
  return std::vector<Rank>(heads->begin(), heads->end());
}

}  // namespace

StateDict save(const SavedView& view) {
  StateDict state;
  state.put("number", view.number);
  state.put_list("members", {view.ranks.members.begin(), view.ranks.members.end()});
  const std::vector<Rank>& heads = view.ranks.heads;
  if (!heads.empty()) state.put_list("heads", {heads.begin(), heads.end()});
  state.put("first_step", view.first_step);
  state.put("first_epoch", view.first_epoch);
  state.put("later_end", view.later_end);
  state.put("by_samples", static_cast<std::int64_t>(view.by_samples));
  state.put("first_batch", view.deal.first_batch);
  state.put("deal_step", view.deal.first_step);
  state.put("deal_is_new", static_cast<std::int64_t>(view.deal_is_new));
  return state;
}

Expected<std::optional<SavedView>> load_view(const StateDict& rank_state, Rank rank, bool trains) {
  const StateDict state = rank_state.under("view");
  if (state.entries().empty()) return std::optional<SavedView>();
  const auto members = state.list("members");
  if (!members) return members.error();
  if (!is_ascending(*members)) return bad_input("view.members is no ascending list of ranks");
  const auto at = std::find(members->begin(), members->end(), rank);
  if (trains && at == members->end())
    return bad_input("view.members lacks rank " + std::to_string(rank) + " itself");
  const auto number = state.integer_in("number", 1, kMost >> 41),
             first_step = state.integer_in("first_step", 0, kMost),
             first_batch = state.integer_in("first_batch", 0, kMost),
             deal_step = state.integer_in("deal_step", 0, kMost),
             is_new = state.integer_in("deal_is_new", 0, 1);
  for (const auto* field : {&number, &first_step, &first_batch, &deal_step, &is_new})
    if (!*field) return field->error();
  const auto first_epoch = state.number("first_epoch");
  if (!first_epoch) return first_epoch.error();
  if (!std::isfinite(*first_epoch) || *first_epoch < 0)
    return bad_input("view.first_epoch is no number of epochs");
  SavedView view;
  if (state.entries().count("later_end") > 0) {
    const auto later = state.integer_in("later_end", -kMost / 4, kMost / 4);
    if (!later) return later.error();
    view.later_end = *later;
  }
  if (state.entries().count("by_samples") > 0) {
    const auto by_samples = state.integer_in("by_samples", 0, 1);
    if (!by_samples) return by_samples.error();
    view.by_samples = *by_samples == 1;
  }
  view.number = *number;
  view.ranks.members.assign(members->begin(), members->end());
  auto heads = load_heads(state, *members);
  if (!heads) return heads.error();
  view.ranks.heads = *std::move(heads);
  view.first_step = *first_step;
  view.first_epoch = *first_epoch;
  view.deal.ranks = static_cast<std::int32_t>(members->size());
  if (trains) view.deal.position = static_cast<std::int32_t>(at - members->begin());
  view.deal.first_batch = *first_batch;
  view.deal.first_step = *deal_step;
  view.deal_is_new = *is_new == 1;
  return std::optional<SavedView>(std::move(view));
}

Horizon horizon_of(const SavedView& view, const Horizon& planned, std::int32_t ranks) {
  Horizon horizon = planned.among(ranks, static_cast<std::int32_t>(view.ranks.members.size()),
                                  view.first_step, view.first_epoch);
  if (!horizon.by_samples && !view.by_samples) horizon.steps += view.later_end;
  return horizon;
}

Expected<std::shared_ptr<const SharedParts>> parts_of_view(const SharedParts& planned,
                                                           const SavedView& view,
                                                           std::int32_t ranks) {
  MemberChange change;
  change.members = view.ranks.members;
  change.before.resize(change.members.size());
  std::iota(change.before.begin(), change.before.end(), 0);
  change.nodes_before.resize(view.ranks.heads.size());
  std::iota(change.nodes_before.begin(), change.nodes_before.end(), 0);
  change.horizon = horizon_of(view, planned.horizon, ranks);
  return parts_among(planned, change);
}

}  // namespace grapevine
