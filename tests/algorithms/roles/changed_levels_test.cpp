// Levels whose members or wiring change at any moment: all ranks take the mean of their models, and
// groups begin anew with the ranks that remain.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/roles/levels/level_parts.hpp"
#include "tests/sim/changing_wirings.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace changed_levels_test {

using sim::distance;
using sim::Keys;
using sim::RoleWorld;
using sim::WorldConfig;
using sim::operator+;

constexpr std::int32_t kRanks = 6, kSize = 3;
constexpr Step kSteps = 24;
constexpr double kRate = 0.125;

using Named = std::pair<std::string, Keys>;

Keys inside(const Keys& keys, std::int32_t ranks = kSize, const std::string& level = "1") {
  Keys prefixed = {{"level." + level + ".ranks", std::to_string(ranks)}};
  for (const auto& [key, value] : keys) prefixed.emplace_back("level." + level + "." + key, value);
  return prefixed;
}

const Keys kAr = {{"exchange", "aggregate"}};
const Keys kGossip = {{"exchange", "gossip"}};
const Keys kSymmetric = kGossip + Keys{{"averaging", "symmetric"}};

const std::vector<Named> kInside = {
    {"ar", kAr},
    {"local-sgd", kAr + Keys{{"pack", "model"}, {"local_steps", "2"}}},
    {"differences", kAr + Keys{{"pack", "difference"}, {"local_steps", "2"}}},
    {"topk-ar", kAr + Keys{{"compress", "top-k"}, {"density", "0.3"}}},
    {"sparse-ar", kAr + Keys{{"compress", "top-k"}, {"density", "0.001"}}},
    {"sgp", kGossip},
    {"d-psgd", kSymmetric + Keys{{"topology", "ring"}}},
    {"choco", kSymmetric + Keys{{"compress", "top-k"}, {"density", "0.3"}}}};
// Those whose heads agree, then others.
const std::vector<Named> kAgreeing = {
    {"ar", kAr},
    {"local-sgd", kAr + Keys{{"pack", "model"}, {"local_steps", "4"}}},
    {"differences", kAr + Keys{{"pack", "difference"}, {"local_steps", "4"}}},
    {"topk-ar", kAr + Keys{{"compress", "top-k"}, {"density", "0.3"}}}};
const std::vector<Named> kOthers = {
    {"overlap", kAr + Keys{{"overlap", "true"}}},
    {"sgp", kGossip + Keys{{"topology", "star"}}},
    {"osgp", kGossip + Keys{{"overlap", "true"}, {"staleness", "2"}}},
    {"d-psgd", kSymmetric + Keys{{"update", "after"}, {"local_steps", "6"}}},
    {"solo", {{"exchange", "partial"}, {"activation", "solo"}}}};

std::vector<Named> all_outside() {
  std::vector<Named> all = kAgreeing;
  all.insert(all.end(), kOthers.begin(), kOthers.end());
  return all;
}

// Each gradient has a direction of its own, so that the models say what has become of it.
constexpr Step kMostSteps = 8 * kSteps;  // where few ranks share the samples of all
constexpr std::int64_t kDimension = kRanks * kMostSteps;

std::int64_t direction(Rank rank, Step step) { return rank * kMostSteps + step; }

at::Tensor own_direction(Rank rank, Step step, const at::Tensor& z) {
  at::Tensor g = at::zeros_like(z);
  g[direction(rank, step)] = 1;
  return g;
}

WorldConfig levels_config(const Keys& keys, std::uint64_t seed) {
  WorldConfig config;
  config.plan = sim::plan_of(keys);
  config.ranks = kRanks;
  config.seed = seed;
  config.dimension = kDimension;
  config.horizon.steps = kSteps;
  config.horizon.steps_per_epoch = 5;
  config.horizon.by_samples = seed % 2 == 0;
  config.lr = kRate;
  config.optimizer.momentum = 0;
  if (seed % 3 == 0) config.slowness[4] = 0.9;
  return config;
}

struct Fate {
  std::set<Step> committed;
  std::int64_t dropped = 0;  // and computed again
};

Fate fate_of(const RoleWorld& world, Rank rank) {
  Fate fate;
  for (const Event& event : world.events(rank)) {
    if (event.kind == EventKind::committed) {
      EXPECT_TRUE(fate.committed.insert(event.stamp.step).second) << "rank " << rank << " twice";
    }
    if (event.kind == EventKind::dropped) ++fate.dropped;
  }
  return fate;
}

// By how much the gradient has moved the model z, in shares of one of kRanks.
double share(const at::Tensor& z, Rank rank, Step step) {
  return -z[direction(rank, step)].item<double>() / kRate * kRanks;
}

void expect_to_end(RoleWorld& world, const Plan& plan) {
  world.run();
  for (const Rank rank : world.members()) {
    ASSERT_TRUE(world.finished(rank)) << "rank " << rank;
    EXPECT_TRUE(at::isfinite(world.z(rank)).all().item<bool>()) << "rank " << rank;
    if (plan.role->ranks_agree(plan)) {
      EXPECT_EQ(distance(world.z(rank), world.z(world.members().front())), 0) << "rank " << rank;
    }
    const Fate fate = fate_of(world, rank);
    EXPECT_EQ(static_cast<std::int64_t>(fate.committed.size()) + fate.dropped, world.given(rank))
        << "rank " << rank << ": a gradient has no account";
  }
}

// Where members change, and nobody is lost, every gradient has the same share of the mean.
TEST(ChangedLevels, KeepEveryGradientOnce) {
  for (const Named& in : kInside)
    for (const Named& out : all_outside())
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(in.first + " inside " + out.first + ", seed=" + std::to_string(seed));
        const WorldConfig config = levels_config(inside(in.second) + out.second, seed);
        RoleWorld world(config, own_direction);
        world.start();
        world.run_until(static_cast<std::int64_t>(world.rng()() % 900));
        seed % 4 == 0 ? world.change_wiring(sim::plan_of(kGossip)) : world.change_members();
        for (const Rank rank : world.members()) {
          EXPECT_LT(distance(world.z(rank), world.z(0)), 1e-6);
          for (const Step step : fate_of(world, rank).committed)
            EXPECT_NEAR(share(world.z(0), rank, step), 1, 1e-3) << "rank " << rank << " " << step;
        }
        if (::testing::Test::HasFailure()) return;
        expect_to_end(world, world.parts()->plan);
      }
}

// A rank is lost at any moment, the head of its group or another one; later it returns. No gradient
// of those that remain counts twice, and none is lost but with a head that had it.
TEST(ChangedLevels, SurviveALoss) {
  for (const Named& in : kInside)
    for (const Named& out : all_outside())
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        const auto dead = static_cast<Rank>(seed % kRanks);
        const bool is_head = dead % kSize == 0;
        SCOPED_TRACE(in.first + " inside " + out.first + ", rank " + std::to_string(dead) +
                     " is lost, seed=" + std::to_string(seed));
        const WorldConfig config = levels_config(inside(in.second) + out.second, seed);
        RoleWorld world(config, own_direction);
        world.start();
        world.run_until(static_cast<std::int64_t>(world.rng()() % 900));
        world.kill(dead, seed % 2 == 0 ? sim::OnTheWire::lost : sim::OnTheWire::delivered);
        world.run_until(world.event_count() + static_cast<std::int64_t>(world.rng()() % 30));
        world.change_members();
        EXPECT_EQ(world.members().size(), kRanks - 1u);
        // A head takes the weight of its group, and what others gave to it, with it; of a period
        // that it had it is not known whether others have it, unless the heads agree.
        const Plan outside = sim::plan_of(out.second);
        const bool agrees = outside.role->ranks_agree(outside);
        // Local steps since an exchange count for ranks without its result, too.
        const bool has_local_steps = in.first == "local-sgd" || in.first == "differences";
        const double most = has_local_steps ? 1.05 * kSize : is_head && !agrees ? 2.2 : 1.6;
        const bool keeps_all = !is_head || agrees;
        for (const Rank rank : world.members()) {
          EXPECT_LT(distance(world.z(rank), world.z(world.members().front())), 1e-6);
          for (const Step step : fate_of(world, rank).committed) {
            const double counted = share(world.z(rank), rank, step);
            EXPECT_LT(counted, most) << "rank " << rank << ", step " << step << " counts twice";
            if (keeps_all) {
              EXPECT_GT(counted, 0.6) << "rank " << rank << ", step " << step << " is lost";
            }
          }
        }
        world.run_until(world.event_count() + static_cast<std::int64_t>(world.rng()() % 200));
        if (seed % 4 < 2) world.change_members({dead});
        if (::testing::Test::HasFailure()) return;
        expect_to_end(world, config.plan);
        if (::testing::Test::HasFailure()) return;
      }
}

// Loses the last chunk that `from` sends to `to` of the mean of a period, and all that follows it.
class BrokenLink {
 public:
  BrokenLink(RoleWorld& world, Rank from, Rank to, std::int64_t first_period) {
    world.lose_where([=](const Envelope& envelope) {
      if (envelope.from != from || envelope.to != to) return false;
      const auto* chunk = std::get_if<Chunk>(&envelope.payload);
      const bool is_last = chunk && chunk->operation < 0 && chunk->round >= kSize;
      const std::int64_t period = is_last ? (-1 - chunk->operation) / kLevelTags : -1;
      if (period_ < 0 && period >= first_period) period_ = period;
      return period_ >= 0;
    });
  }
  BrokenLink(const BrokenLink&) = delete;
  BrokenLink& operator=(const BrokenLink&) = delete;
  // Whose mean `to` does not get; -1: none yet.
  std::int64_t period() const { return period_; }

 private:
  std::int64_t period_ = -1;
};

// The head has the mean of a period that another rank, short of a message of a lost one, has not,
// and gives that rank a share of its next step: with push-sum half of it is nowhere else.
TEST(ChangedLevels, ASharePastTheMeanThatItsReceiverLacksCounts) {
  int seen = 0;
  for (const Named& out : {kAgreeing[0], kOthers[1]})
    for (const Rank receiver : {1, 2})
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE(out.first + ", receiver " + std::to_string(receiver) +
                     ", seed=" + std::to_string(seed));
        const WorldConfig config = levels_config(inside(kGossip) + out.second, seed);
        RoleWorld world(config, own_direction);
        const Rank lost = kSize - receiver;
        const BrokenLink link(world, lost, receiver, static_cast<std::int64_t>(seed));
        Step given = -1;
        world.watch([&](const Envelope& envelope, bool delivered) {
          const bool is_share = std::holds_alternative<Share>(envelope.payload) && !delivered;
          if (is_share && envelope.from == 0 && envelope.to == receiver)
            given = envelope.stamp.step;
        });
        world.start();
        // A period has one step.
        const auto is_past = [&] { return link.period() >= 0 && given > link.period(); };
        while (!is_past() && world.event_count() < 2000 && world.step()) {
        }
        if (!is_past()) continue;  // the head gives in every second round
        ++seen;
        world.kill(lost, sim::OnTheWire::lost);
        world.change_members();
        // Of two ranks in one of two groups.
        EXPECT_NEAR(share(world.z(0), 0, given), kRanks / 4.0, 1e-3)
            << "step " << given << " of the head is not whole";
        expect_to_end(world, config.plan);
        if (::testing::Test::HasFailure()) return;
      }
  EXPECT_GE(seen, 8);
}

// Groups of groups. Where all exchanges are means, ranks that remain have whole shares; and where
// nobody is lost, equal ones.
TEST(ChangedLevels, NestedGroupsChange) {
  for (const Named& middle : std::vector<Named>{{"ar", kAr}, {"d-psgd", kSymmetric}})
    for (const Named& out : std::vector<Named>{{"ar", kAr}, {"sgp", kGossip}})
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(middle.first + " inside " + out.first + ", seed=" + std::to_string(seed));
        const Keys keys = inside(kAr, 2, "1") + inside(middle.second, 4, "2") + out.second;
        WorldConfig config = levels_config(keys, seed);
        config.ranks = 8;
        config.dimension = 8 * kMostSteps;
        RoleWorld world(config, own_direction);
        world.start();
        world.run_until(static_cast<std::int64_t>(world.rng()() % 900));
        const auto dead = static_cast<Rank>(seed % 8);
        const bool loses = seed % 3 != 0, is_head = dead % 2 == 0;
        if (loses) world.kill(dead);
        world.change_members();
        for (const Rank rank : world.members())
          for (const Step step : fate_of(world, rank).committed) {
            const double counted = share(world.z(rank), rank, step) / kRanks * 8;
            if (!loses) {
              EXPECT_NEAR(counted, 1, 1e-3) << "rank " << rank << ", step " << step;
            } else {
              EXPECT_LT(counted, is_head ? 4.1 : 2.1) << "rank " << rank << ", step " << step;
            }
            if (loses && !is_head) {
              EXPECT_GT(counted, 0.6) << "rank " << rank << ", step " << step;
            }
          }
        if (loses && seed % 2 == 0) world.change_members({dead});
        expect_to_end(world, config.plan);
        if (::testing::Test::HasFailure()) return;
      }
}

// Down to one rank of each group, and to one group.
TEST(ChangedLevels, SurviveManyLosses) {
  for (const Named& in : kInside)
    for (const Named& out : all_outside())
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        SCOPED_TRACE(in.first + " inside " + out.first + ", seed=" + std::to_string(seed));
        const WorldConfig config = levels_config(inside(in.second) + out.second, seed);
        RoleWorld world(config, own_direction);
        world.start();
        std::vector<Rank> dying = {0, 1, 2, 3, 4, 5};
        std::shuffle(dying.begin(), dying.end(), world.rng());
        dying.resize(4);
        for (const Rank dead : dying) {
          world.run_until(world.event_count() + static_cast<std::int64_t>(world.rng()() % 120));
          world.kill(dead);
          world.change_members();
        }
        expect_to_end(world, config.plan);
        if (::testing::Test::HasFailure()) return;
      }
}

}  // namespace changed_levels_test
}  // namespace grapevine
