#include "algorithms/roles/partial_rounds.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "messages/random.hpp"

namespace grapevine {

PartialRounds::PartialRounds(const PartialSettings& settings, std::uint64_t seed, Step steps,
                             std::int32_t ranks)
    : settings_(&settings),
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
  switch (settings_->activation) {
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
  return settings_->quorum > 0 ? settings_->quorum : more_than_half;
}

void PartialRounds::consume(const std::vector<std::int64_t>& tally) {
  for (std::size_t r = 0; r < consumed_.size(); ++r) consumed_[r] += tally[r];
}

void PartialRounds::advance() {
  if (regular_) ++regular_rounds_;
  ++round_;
  enter_phase();
}

void PartialRounds::fields(Archive& a) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  const std::size_t ranks = consumed_.size();
  a.whole("now", round_, 0, kMost);
  a.whole("regular_over", regular_rounds_, 0, kMost);
  a.flag("regular", regular_);
  a.list("consumed", consumed_);
  a.require(consumed_.size() == ranks, "consumed", "is of another number of ranks");
}

}  // namespace grapevine
