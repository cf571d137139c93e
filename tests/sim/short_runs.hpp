// Short runs of a few ranks with linear gradients, by the keys of a wiring: for degenerate cases
// and oracles.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine::sim {

inline constexpr double kShortRate = 0.125;

inline WorldConfig short_config(const Keys& keys, std::int32_t ranks, Step steps,
                                std::uint64_t seed) {
  WorldConfig config;
  config.plan = plan_of(keys);
  config.ranks = ranks;
  config.seed = seed;
  config.dimension = 7;
  config.horizon.steps = steps;
  config.horizon.steps_per_epoch = 5;
  config.lr = kShortRate;
  return config;
}

// Rank r is pulled to r + 1. Linear: the mean of the models follows from that mean alone.
inline at::Tensor pull_beyond(Rank rank, Step, const at::Tensor& z) {
  return z - static_cast<double>(rank + 1);
}

// Of each rank that trains, at its end; saved and loaded after each `checkpoint_every` events,
// where that is above 0.
inline std::vector<at::Tensor> models_after(const WorldConfig& config,
                                            const GradientOf& gradient_of = pull_beyond,
                                            std::int64_t checkpoint_every = 0) {
  RoleWorld world(config, gradient_of);
  world.start();
  std::int64_t events = 0;
  world.run([&] {
    if (checkpoint_every > 0 && ++events % checkpoint_every == 0) world.save_and_load();
  });
  std::vector<at::Tensor> models;
  for (Rank rank = 0; rank < config.ranks; ++rank) {
    EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
    if (config.plan.role->plans_each_rank) {
      EXPECT_EQ(world.model(rank).step, config.horizon.steps) << "rank " << rank;
    }
    models.push_back(world.z(rank).clone());
  }
  return models;
}

}  // namespace grapevine::sim
