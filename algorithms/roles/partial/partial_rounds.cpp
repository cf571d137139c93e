#include "algorithms/roles/partial/partial_rounds.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace grapevine {

PartialRounds::PartialRounds(const ActivationSettings& settings, std::uint64_t seed, Step steps,
                             std::int64_t exchanges, std::int32_t ranks)
    : settings_(&settings),
      seed_(seed),
      steps_(steps),
      regular_rounds_in_all_(exchanges),
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

Trigger PartialRounds::trigger(double epoch) const {
  return make_trigger(*settings_, seed_, round_, epoch, unfinished(),
                      static_cast<std::int32_t>(consumed_.size()));
}

void PartialRounds::consume(const std::vector<std::int64_t>& tally) {
  for (std::size_t r = 0; r < consumed_.size(); ++r) consumed_[r] += tally[r];
}

void PartialRounds::advance() {
  if (regular_) ++regular_rounds_;
  ++round_;
  enter_phase();
}

void PartialRounds::begin_at(Step steps, std::int64_t exchanges) {
  std::fill(consumed_.begin(), consumed_.end(), steps);
  round_ = exchanges;
  extend(exchanges);
}

// A rank that joins stands where the one stands that is furthest.
void PartialRounds::kept_fields(Archive& a, const std::vector<std::int32_t>& before) {
  std::vector<std::int64_t> consumed = consumed_;
  a.count("now", round_);
  a.count("regular_over", regular_rounds_);
  a.list("consumed", consumed);
  if (!a.loads() || !a.ok()) return;
  const auto known = static_cast<std::int32_t>(consumed.size());
  const bool fits = before.size() == consumed_.size() &&
                    std::all_of(before.begin(), before.end(),
                                [known](std::int32_t at) { return at >= -1 && at < known; });
  a.require(fits && known > 0, "consumed", "is of other ranks");
  if (!a.ok()) return;
  const std::int64_t most = *std::max_element(consumed.begin(), consumed.end());
  for (std::size_t i = 0; i < before.size(); ++i)
    consumed_[i] = before[i] < 0 ? most : consumed[static_cast<std::size_t>(before[i])];
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
