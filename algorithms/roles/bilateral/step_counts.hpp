// StepCounts: the gradients of each rank, as far as one rank knows. A part of the bilateral role:
// counts travel with its messages, and the larger one holds.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "algorithms/archive.hpp"
#include "messages/frozen_tensor.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class StepCounts {
 public:
  explicit StepCounts(std::int32_t ranks);

  void set(Rank rank, Step steps);
  // Of another rank: [ranks] int64. Another form or range is a broken invariant.
  void learn(const FrozenTensor& counts);
  // A copy, [ranks] int64.
  FrozenTensor counts() const { return FrozenTensor::copy_of(steps_); }
  std::int64_t total() const;
  std::int64_t of(Rank rank) const;

  void fields(Archive& a);

 private:
  at::Tensor steps_;  // [ranks] int64
};

}  // namespace grapevine
