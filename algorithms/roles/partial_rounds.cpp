#include "algorithms/roles/partial_rounds.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "messages/random.hpp"

namespace grapevine {

PartialRounds::PartialRounds(const PartialSettings& settings, std::uint64_t seed, Step steps,
                             std::int32_t ranks)
    : settings_(settings),
      seed_(seed),
      steps_(steps),
      consumed_(static_cast<std::size_t>(ranks), 0) {
  enter_phase();
}

std::int64_t PartialRounds::consumed_by_all() const {
  return std::accumulate(consumed_.begin(), consumed_.end(), std::int64_t{0});
}

bool PartialRounds::all_consumed() const { return unfinished().empty(); }

std::vector<std::int32_t> PartialRounds::unfinished() const {
  std::vector<std::int32_t> left;
  for (std::size_t r = 0; r < consumed_.size(); ++r)
    if (consumed_[r] < steps_) left.push_back(static_cast<std::int32_t>(r));
  return left;
}

Trigger PartialRounds::trigger() const {
  const std::vector<std::int32_t> candidates = unfinished();
  const auto left = static_cast<std::int32_t>(candidates.size());
  const auto drawn = static_cast<std::size_t>(mix_seed(seed_, static_cast<std::uint64_t>(round_)) %
                                              std::max<std::size_t>(1, candidates.size()));
  switch (settings_.activation) {
    case ActivationPolicy::solo:
      return {Trigger::Kind::first_ready, 0, 1};
    case ActivationPolicy::majority:
      return {Trigger::Kind::initiator, candidates.empty() ? 0 : candidates[drawn], 1};
    case ActivationPolicy::quorum:
      return {Trigger::Kind::quorum,
              static_cast<std::int32_t>(round_ % static_cast<std::int64_t>(consumed_.size())),
              std::min(quorum(), left)};
  }
  return {};
}

std::int32_t PartialRounds::quorum() const {
  const std::int32_t more_than_half = static_cast<std::int32_t>(consumed_.size()) / 2 + 1;
  return settings_.quorum > 0 ? settings_.quorum : more_than_half;
}

void PartialRounds::consume(const std::vector<std::int64_t>& tally) {
  for (std::size_t r = 0; r < consumed_.size(); ++r) consumed_[r] += tally[r];
}

void PartialRounds::advance() {
  if (regular_) ++regular_rounds_;
  ++round_;
  enter_phase();
}

StateDict PartialRounds::save() const {
  StateDict state;
  state.put("now", round_);
  state.put("regular_over", regular_rounds_);
  state.put("regular", std::int64_t{regular_});
  state.put_list("consumed", consumed_);
  return state;
}

Expected<void> PartialRounds::load(const StateDict& state) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  const auto round = state.integer_in("now", 0, kMost),
             regular_rounds_done = state.integer_in("regular_over", 0, kMost),
             regular = state.integer_in("regular", 0, 1);
  for (const auto* field : {&round, &regular_rounds_done, &regular})
    if (!*field) return field->error();
  auto consumed = state.list("consumed");
  if (!consumed) return consumed.error();
  if (consumed->size() != consumed_.size())
    return bad_input("entry 'consumed' of the saved state is of another number of ranks");
  round_ = *round;
  regular_rounds_ = *regular_rounds_done;
  regular_ = *regular != 0;
  consumed_ = std::move(*consumed);
  return {};
}

}  // namespace grapevine
