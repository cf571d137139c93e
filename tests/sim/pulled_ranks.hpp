// Ranks that disagree: they start apart, and each is pulled to its own optimum, c_r = r.
#pragma once
#include "tests/sim/role_world.hpp"

namespace grapevine::sim {

inline at::Tensor pull(Rank rank, Step, const at::Tensor& z) {
  return z - static_cast<double>(rank);
}

// Before start(): another model for each rank.
inline void scatter(RoleWorld& world, std::int32_t ranks, std::int64_t dimension) {
  for (Rank r = 0; r < ranks; ++r)
    world.set_x(r, at::arange(dimension, at::kFloat) + static_cast<double>(3 * r));
}

// The largest difference of two elements.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace grapevine::sim
