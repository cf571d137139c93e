// Nodes whose ranks act as one: what must hold whatever role the heads play.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace hierarchy_test {

using sim::distance;
using sim::pull;
using sim::RoleWorld;
using sim::WorldConfig;

Plan make_plan(const std::string& preset, std::int32_t hierarchy, const sim::Keys& set = {}) {
  const sim::Keys node = {{"hierarchy", std::to_string(hierarchy)}};
  return sim::plan_of(sim::operator+(sim::operator+(sim::keys_of(preset), node), set));
}

WorldConfig make_config(const Plan& plan, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = plan;
  config.ranks = ranks;
  config.seed = seed;
  config.lr = 0.1;
  config.optimizer.momentum = 0.9;
  config.horizon.steps = 20;
  config.horizon.steps_per_epoch = 5;
  config.dimension = 7;
  return config;
}

struct Shape {
  std::int32_t nodes, size;
};
const std::vector<Shape> kShapes = {{1, 2}, {1, 5}, {2, 2}, {2, 3}, {4, 2}, {4, 4}, {8, 4}};

// A node of R ranks is one rank that sees the mean of their gradients.
TEST(Hierarchy, EqualsFlatRanksThatSeeTheNodesMean) {
  for (const std::string preset : {"ar", "sgp", "osgp", "d-psgd"})
    for (const Shape& shape : kShapes)
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(preset + ", " + std::to_string(shape.nodes) + " nodes of " +
                     std::to_string(shape.size) + ", seed=" + std::to_string(seed));
        const std::int32_t ranks = shape.nodes * shape.size;
        RoleWorld nested(make_config(make_plan(preset, shape.size), ranks, seed), pull);
        const double middle = (shape.size - 1) / 2.0;
        RoleWorld flat(
            make_config(make_plan(preset, 1), shape.nodes, seed),
            [&](Rank node, Step, const at::Tensor& z) { return z - (node * shape.size + middle); });
        for (RoleWorld* world : {&nested, &flat}) {
          world->start();
          world->run();
        }
        for (Rank r = 0; r < ranks; ++r) {
          EXPECT_TRUE(nested.finished(r)) << "rank " << r;
          EXPECT_EQ(nested.model(r).step, 20) << "rank " << r;
          EXPECT_LT(distance(nested.z(r), flat.z(r / shape.size)), 1e-5) << "rank " << r;
        }
      }
}

// All ranks of a node end with the same bits, also where the heads' models change after their end.
TEST(Hierarchy, RanksOfANodeAgree) {
  for (const auto& [preset, set] :
       std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>>{
           {"sgp", {}}, {"osgp", {{"staleness", "2"}}}, {"ad-psgd", {}}})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(make_plan(preset, 3, set), 12, seed);
      config.slowness[4] = 0.9;
      RoleWorld world(config, pull);
      world.start();
      world.run();
      for (Rank r = 0; r < 12; ++r) {
        EXPECT_TRUE(world.finished(r)) << "rank " << r;
        EXPECT_TRUE(at::equal(world.z(r), world.z(r / 3 * 3))) << "rank " << r;
      }
    }
}

// Every gradient of every rank is in the model of its node.
TEST(Hierarchy, CommitsEveryGradientOnce) {
  WorldConfig config = make_config(make_plan("sgp", 2), 8, 4);
  RoleWorld world(config, pull);
  world.start();
  world.run();
  for (Rank r = 0; r < 8; ++r) {
    std::vector<Step> committed;
    for (const Event& event : world.events(r))
      if (event.kind == EventKind::committed) {
        EXPECT_EQ(event.stamp.origin, r);
        committed.push_back(event.stamp.step);
      }
    ASSERT_EQ(committed.size(), 20U) << "rank " << r;
    for (Step step = 0; step < 20; ++step)
      EXPECT_EQ(committed[static_cast<std::size_t>(step)], step);
  }
}

// Whoever waits says so, once, and for whom: also while the head speaks to other nodes.
TEST(Hierarchy, EveryWaitBeginsAndEnds) {
  for (const std::string preset : {"ar", "sgp", "osgp", "ad-psgd"})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RoleWorld world(make_config(make_plan(preset, 3), 12, seed), pull);
      world.start();
      world.run();
      for (Rank r = 0; r < 12; ++r) {
        bool waiting = false;
        int for_head = 0;
        for (const Event& event : world.events(r)) {
          const bool begins = event.kind == EventKind::wait_begin;
          if (!begins && event.kind != EventKind::wait_end) continue;
          EXPECT_NE(waiting, begins) << "rank " << r << ", step " << event.step;
          waiting = begins;
          if (begins && event.peer == r / 3 * 3) ++for_head;
        }
        EXPECT_FALSE(waiting) << "rank " << r;
        EXPECT_EQ(for_head > 0, r % 3 != 0) << "rank " << r;
      }
    }
}

TEST(Hierarchy, SaveAndLoadChangeNothing) {
  for (const std::string preset : {"ar", "sgp", "osgp", "d-psgd"})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      const WorldConfig config = make_config(make_plan(preset, 3), 12, seed);
      RoleWorld straight(config, pull), broken(config, pull);
      straight.start();
      straight.run();
      broken.start();
      const auto when = static_cast<std::int64_t>(1 + broken.rng()() % 700);
      broken.run_until(when);
      broken.save_and_load();
      broken.run();
      for (Rank r = 0; r < 12; ++r) EXPECT_TRUE(at::equal(straight.z(r), broken.z(r)));
    }
}

// The same where the clock is all ranks' and may have come to its end while a gradient is on its
// way: a node that computes or sums one is not told that all is over.
TEST(Hierarchy, ASavedStateGoesOnToTheEnd) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = make_config(make_plan("ad-psgd", 2), 4, seed);
    config.slowness[static_cast<Rank>(seed) % 4] = 0.8;
    RoleWorld whole(config, pull), cut(config, pull);
    whole.start();
    whole.run();
    // Most often near the end.
    const auto from_end = static_cast<std::int64_t>(cut.rng()() % (seed % 3 == 0 ? 600 : 60));
    cut.start();
    cut.run_until(whole.event_count() - from_end);
    cut.save_and_load();
    cut.run();
    for (Rank r = 0; r < 4; ++r) {
      EXPECT_TRUE(cut.finished(r)) << "rank " << r;
      EXPECT_TRUE(at::equal(cut.z(r), cut.z(r / 2 * 2))) << "rank " << r;
    }
  }
}

// Also where it is not the number of a rank's own steps: the learning rate, the validations and the
// checkpoints of a node go by it.
TEST(Hierarchy, TheClockOfANodeIsItsHeads) {
  for (const std::string preset : {"ad-psgd", "eager-solo"})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(make_plan(preset, 3), 12, seed);
      config.slowness[4] = 0.95;
      RoleWorld world(config, pull);
      std::vector<double> clock(12, 0);
      world.start();
      world.run([&] {
        for (Rank r = 0; r < 12; ++r) {
          const double now = world.model(r).epoch;
          ASSERT_GE(now, std::exchange(clock[static_cast<std::size_t>(r)], now)) << "rank " << r;
          ASSERT_LE(now, world.model(r / 3 * 3).epoch) << "rank " << r;
        }
      });
      for (Rank r = 0; r < 12; ++r) {
        EXPECT_GE(world.model(r).epoch, 4 - 1e-9) << "rank " << r;
        EXPECT_EQ(world.model(r).epoch, world.model(r / 3 * 3).epoch) << "rank " << r;
      }
      if (preset != "ad-psgd") continue;
      EXPECT_LT(world.model(3).step, 20) << "the slow node was not slow: nothing was tested";
    }
}

TEST(Hierarchy, ParametersComeFromTheHead) {
  for (const bool from_head : {true, false}) {
    RoleWorld world(make_config(make_plan("ar", 4), 8, 1), pull);
    world.tamper([&](Envelope& envelope) {
      if (envelope.to % 4 == 0 || envelope.from / 4 != envelope.to / 4) return;
      auto* parameters = std::get_if<Parameters>(&envelope.payload);
      if (from_head && parameters != nullptr)
        parameters->x = FrozenTensor::copy_of(at::zeros({3}));  // of 7
      else if (!from_head && parameters == nullptr && envelope.from % 4 != 0)
        envelope.payload = Parameters{0, true, 0, FrozenTensor::copy_of(at::zeros({7}))};
    });
    world.start();
    EXPECT_THROW(world.run(), InvariantBroken) << from_head;
  }
}

// As many messages as the ranks of the node have where they exchange by themselves.
TEST(Hierarchy, ANodeChoosesItsAllReduceAsRanksDo) {
  for (const std::int32_t ranks : {2, 3, 4, 5})
    for (const std::int64_t dimension : {7, 5000}) {
      const auto chunks = [&](std::int32_t hierarchy) {
        WorldConfig config = make_config(make_plan("ar", hierarchy), ranks, 1);
        config.dimension = dimension;
        RoleWorld world(config, pull);
        std::int64_t count = 0;
        world.watch([&](const Envelope& message, bool delivered) {
          count += !delivered && std::holds_alternative<Chunk>(message.payload);
        });
        world.start();
        world.run();
        return count;
      };
      EXPECT_EQ(chunks(ranks), chunks(1)) << ranks << " ranks, " << dimension << " elements";
    }
}

TEST(Hierarchy, RefusesNodesThatAreNotFull) {
  const auto parts =
      make_parts(make_plan("sgp", 3), Horizon{}, *LrSchedule::make({}), OptimizerConfig{}, 8);
  ASSERT_FALSE(parts);
  EXPECT_NE(parts.error().message.find("wiring.hierarchy = 3 does not divide 8 ranks"),
            std::string::npos)
      << parts.error().message;
}

}  // namespace hierarchy_test
}  // namespace grapevine
