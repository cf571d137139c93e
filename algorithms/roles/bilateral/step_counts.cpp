#include "algorithms/roles/bilateral/step_counts.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "messages/check.hpp"

namespace grapevine {
namespace {

// Of one rank: more is damage, and the sum over ranks would overflow.
constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

bool can_be_steps(std::int64_t count) { return count >= 0 && count <= kMostSteps; }

}  // namespace

StepCounts::StepCounts(std::int32_t ranks) : steps_(at::zeros({ranks}, at::kLong)) {}

void StepCounts::set(Rank rank, Step steps) { steps_[rank] = steps; }

void StepCounts::learn(const FrozenTensor& counts) {
  GRAPEVINE_CHECK(counts.defined() && counts.dtype() == at::kLong && counts.read().dim() == 1 &&
                      counts.numel() == steps_.numel(),
                  "a peer sent counts of gradients that are not one for each of ", steps_.numel(),
                  " ranks");
  const auto* values = counts.read().data_ptr<std::int64_t>();
  GRAPEVINE_CHECK(std::all_of(values, values + counts.numel(), can_be_steps),
                  "a peer sent a count of gradients outside 0..", kMostSteps);
  at::maximum_out(steps_, steps_, counts.read());
}

std::int64_t StepCounts::total() const { return steps_.sum().item<std::int64_t>(); }

std::int64_t StepCounts::of(Rank rank) const { return steps_[rank].item<std::int64_t>(); }

void StepCounts::fields(Archive& a) {
  const auto* known = steps_.data_ptr<std::int64_t>();
  std::vector<std::int64_t> steps(known, known + steps_.numel());
  a.list("steps", steps, 0, kMostSteps);
  a.require(static_cast<std::int64_t>(steps.size()) == steps_.numel(), "steps",
            "is of another number of ranks");
  if (a.loads() && a.ok()) steps_ = at::tensor(steps, at::kLong);
}

}  // namespace grapevine
