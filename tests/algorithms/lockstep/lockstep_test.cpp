#include "algorithms/lockstep/lockstep.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <ATen/ATen.h>

#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace lockstep_test {

constexpr std::int64_t kD = 40;

std::shared_ptr<const SharedParts> parts_of(const sim::Keys& keys, std::int32_t ranks, Step steps) {
  Horizon horizon;
  horizon.steps = steps;
  LrConfig rate;
  rate.lr = 0.1;
  auto parts = make_parts(sim::plan_of(keys), horizon, *LrSchedule::make(rate), {}, ranks);
  EXPECT_TRUE(parts.ok()) << parts.error().message;
  return *parts;
}

// Of |z - target|^2 / 2, the same target for all.
at::Tensor towards_one(Rank, Step, const at::Tensor& z) { return z - 1; }

TEST(Lockstep, TakesEveryPresetToItsEnd) {
  for (const Preset& preset : presets()) {
    sim::Keys keys = sim::keys_of(preset.name);
    for (auto& [key, value] : keys) {
      if (key == "density") value = "0.5";
      if (key == "local_steps") value = "4";
    }
    const Step steps = 400;
    Lockstep world(
        parts_of(keys, 4, steps), 4, [](Rank) { return at::zeros({kD}); }, &towards_one);
    std::int64_t sweeps = 0;
    while (world.sweep()) ASSERT_LE(++sweeps, 3 * steps) << preset.name;
    for (Rank rank = 0; rank < world.ranks(); ++rank) {
      EXPECT_TRUE(world.finished(rank)) << preset.name << ", rank " << rank;
      const at::Tensor z = world.role(rank).debiased().read();
      EXPECT_LT((z - 1).abs().max().item<double>(), 0.05) << preset.name << ", rank " << rank;
    }
  }
}

TEST(Lockstep, RanksAreAtTheSameStepAfterEverySweep) {
  Lockstep world(
      parts_of(sim::keys_of("sgp"), 5, 6), 5, [](Rank) { return at::zeros({kD}); }, &towards_one);
  for (Step step = 1; step <= 6; ++step) {
    ASSERT_TRUE(world.sweep());
    for (Rank rank = 0; rank < 5; ++rank) EXPECT_EQ(world.model(rank).step, step);
  }
  EXPECT_FALSE(world.sweep());
}

TEST(Lockstep, LostMessagesEndIt) {
  Lockstep world(
      parts_of(sim::keys_of("ar"), 3, 6), 3, [](Rank) { return at::zeros({kD}); }, &towards_one,
      [](const Envelope&) { return false; });
  ASSERT_TRUE(world.sweep());
  EXPECT_FALSE(world.sweep());
  EXPECT_FALSE(world.finished(0));
}

}  // namespace lockstep_test
}  // namespace grapevine
