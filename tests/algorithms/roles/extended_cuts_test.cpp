// A run of which some ranks have ended, and others not, when it is made longer.
#include <gtest/gtest.h>

#include "algorithms/roles/partial/partial_rounds.hpp"
#include "algorithms/wiring/longer_run.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/pressed_wirings.hpp"

namespace grapevine {
namespace extended_cuts_test {

using sim::PressedWiring;
using sim::RoleWorld;
using sim::WorldConfig;

constexpr Step kLonger = 48;

at::Tensor pull(Rank rank, Step step, const at::Tensor& z) {
  return z - (at::arange(z.numel(), at::kFloat) * 0.3 + (rank - 0.2 * static_cast<double>(step)));
}

std::vector<PressedWiring> presets_and_pressed() {
  std::vector<PressedWiring> all = sim::pressed_wirings();
  for (const Preset& preset : presets()) {
    std::string name = "Preset";
    for (const char c : preset.name)
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
    all.push_back({name, sim::keys_of(preset.name), 6});
  }
  return all;
}

// Whether some ranks have ended, and others not.
bool ends(const RoleWorld& world) {
  std::size_t ended = 0;
  const std::vector<Rank> all = world.members_and_servers();
  for (const Rank rank : all) ended += world.finished(rank) ? 1 : 0;
  return ended > 0 && ended < all.size();
}

// As the command takes it from a checkpoint.
bool may_be_longer(const RoleWorld& world, Step end) {
  SharedParts longer = *world.parts();
  longer.horizon.steps = kLonger;
  longer.exchanges = ExchangeSteps(longer.plan.local.steps, longer.horizon, longer.lr);
  const auto begins = end_begins(longer, end, !longer.began_together());
  if (!begins) return true;
  for (const Rank rank : world.members()) {
    const ModelState& model = world.model(rank);
    const Step mean = static_cast<Step>(std::llround(model.epoch * longer.horizon.steps_per_epoch));
    const Step own = std::max(model.step, static_cast<Step>(world.given(rank)));
    if ((longer.plan.role->plans_each_rank ? own : mean) >= *begins) return false;
  }
  return true;
}

// Results do not depend on when messages arrive.
bool is_deterministic(const Plan& plan) {
  if (const auto* partial = dynamic_cast<const PartialSettings*>(plan.settings.get()))
    return partial->staleness.most() == 0;
  if (const auto* gossip = dynamic_cast<const GossipSettings*>(plan.settings.get()))
    return !gossip->rounds_differ();
  return plan.role->synchronous(plan) || sim::is_role(plan, "aggregate");
}

std::int64_t committed(const RoleWorld& world, Rank rank) {
  std::int64_t count = 0;
  for (const Event& event : world.events(rank)) count += event.kind == EventKind::committed;
  return count;
}

// From the moment at which the first rank has ended on, some events further; false where all have.
bool come_amid_the_end(RoleWorld& world, std::uint64_t seed) {
  while (!ends(world))
    if (!world.step()) return false;
  for (std::uint64_t left = mix_seed(seed, 9) % 12; left > 0 && ends(world); --left) world.step();
  return ends(world);
}

void expect_a_whole_run(const RoleWorld& world, const PressedWiring& wiring) {
  const Plan plan = wiring.plan();
  for (const Rank rank : world.members_and_servers())
    EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
  for (const Rank rank : world.members()) {
    if (!plan.role->plans_each_rank || plan.role->drops_gradients(plan)) continue;
    EXPECT_EQ(committed(world, rank), kLonger) << "rank " << rank;
    EXPECT_EQ(world.model(rank).step, kLonger) << "rank " << rank;
  }
  if (sim::is_role(plan, "gossip")) {
    EXPECT_NEAR(world.total_w(), wiring.ranks, 1e-9);
  }
  if (!plan.role->ranks_agree(plan) && !plan.role->replicates) return;
  for (const Rank rank : world.members())
    EXPECT_TRUE(at::equal(world.z(rank), world.z(0))) << "rank " << rank << " disagrees";
}

// Cuts that are no end of some ranks, or that are refused, try nothing: of all wirings together
// enough have to be left. A run of a few tests has too few to say so.
class ExtendedCuts : public testing::TestWithParam<PressedWiring> {
 protected:
  static void TearDownTestSuite() {
    if (cuts_ < 300) return;
    EXPECT_GT(tried_, cuts_ / 6) << "of " << cuts_ << " cuts: little was tested";
  }
  // Whether the run in `world` is continued from where it is.
  static bool tries(RoleWorld& world, std::uint64_t seed, Step end) {
    ++cuts_;
    const bool tried = come_amid_the_end(world, seed) && may_be_longer(world, end);
    tried_ += tried ? 1 : 0;
    return tried;
  }

 private:
  static inline int cuts_ = 0, tried_ = 0;
};

TEST_P(ExtendedCuts, AreRefusedOrWholeRuns) {
  const PressedWiring& wiring = GetParam();
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = sim::config_of(wiring, seed);
    config.slowness = {{0, 0.3}, {wiring.ranks - 1, 0.95}};
    // Whether local steps divide it, or not.
    config.horizon.steps = seed % 2 == 0 ? 24 : 22;
    RoleWorld world(config, pull);
    world.start();
    if (!tries(world, seed, config.horizon.steps)) continue;
    world.continue_to(kLonger);
    ASSERT_NO_THROW(world.run());
    expect_a_whole_run(world, wiring);
    if (!is_deterministic(wiring.plan())) continue;
    config.horizon.steps = kLonger;
    config.slowness = {};
    RoleWorld whole(config, pull);
    whole.start();
    whole.run();
    for (const Rank rank : world.members())
      EXPECT_TRUE(at::equal(world.z(rank), whole.z(rank))) << "rank " << rank;
  }
}

// Then ranks are at different steps of the same rounds.
TEST_P(ExtendedCuts, AreRefusedOrWholeRunsOnceMembersHaveChanged) {
  const PressedWiring& wiring = GetParam();
  const Plan plan = wiring.plan();
  if (!changes_members(plan) || plan.role->changes_by_mean || plan.hierarchy > 1)
    GTEST_SKIP() << "its members do not change, or in another way";
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = sim::config_of(wiring, seed);
    config.slowness = {{0, 0.3}, {wiring.ranks - 1, 0.95}};
    RoleWorld world(config, pull);
    world.start();
    world.run_until(40 + static_cast<std::int64_t>(seed) * 10);
    world.kill(1);
    world.change_members();
    if (seed % 2 == 0) {
      world.run_until(world.event_count() + 30);
      world.change_members({1});
    }
    std::int64_t sent = 0;
    world.watch([&](const Envelope& e, bool delivered) {
      sent += !delivered && !std::holds_alternative<Leave>(e.payload);
    });
    const Step end = world.parts()->horizon.steps;
    if (!tries(world, seed, end)) continue;
    std::map<Rank, std::int64_t> before;
    for (const Rank rank : world.members()) before[rank] = world.model(rank).step;
    sent = 0;
    world.continue_to(kLonger);
    ASSERT_NO_THROW(world.run());
    for (const Rank rank : world.members_and_servers())
      EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
    if (plan.role->plans_each_rank) {
      for (const Rank rank : world.members())
        EXPECT_EQ(world.model(rank).step, kLonger) << "rank " << rank;
      // No rank leaves another one out before the new end.
      std::int64_t exchanges = 0;
      for (const Rank rank : world.members()) exchanges += kLonger - before[rank];
      EXPECT_GE(sent, exchanges / world.parts()->exchanges.longest()) << "ranks were left out";
    }
    if (!plan.role->replicates) continue;
    for (const Rank rank : world.members())
      EXPECT_TRUE(at::equal(world.z(rank), world.z(0))) << "rank " << rank << " disagrees";
  }
}

INSTANTIATE_TEST_SUITE_P(Wirings, ExtendedCuts, testing::ValuesIn(presets_and_pressed()),
                         [](const auto& info) { return info.param.name; });

}  // namespace extended_cuts_test
}  // namespace grapevine
