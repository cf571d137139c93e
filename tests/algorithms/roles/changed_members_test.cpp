// Ranks are lost at any moment, and the others continue among themselves: by Role::close() and what
// follows it, as the actors call them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/changing_wirings.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace changed_members_test {

using sim::distance;
using sim::Keys;
using sim::OnTheWire;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

using sim::counts_of;
using sim::name_of;

constexpr std::int64_t kDimension = sim::kChangingDimension;
constexpr double kRate = sim::kChangingRate;

WorldConfig make_config(const Keys& keys, std::int32_t ranks, std::uint64_t seed) {
  return sim::changing_config(keys, ranks, seed);
}

// The others finish, each gradient that their workers gave is committed or dropped once (RoleWorld
// checks that none is twice), and where ranks replicate one model they end with the same bits.
TEST(ChangedMembers, RemainingRanksFinishAndAccountForTheirGradients) {
  std::int64_t caught_up = 0;
  for (const Keys& keys : sim::wirings_of_changing_members())
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(name_of(keys) + ", seed=" + std::to_string(seed));
      const std::int32_t n = 4 + static_cast<std::int32_t>(seed % 3);
      WorldConfig config = make_config(keys, n, seed);
      if (seed % 4 == 0) config.slowness[1] = 0.9;
      RoleWorld world(config, pull);
      scatter(world, config.plan.role->replicates ? 1 : n, kDimension);
      if (config.plan.role->replicates)
        for (Rank r = 1; r < n; ++r) world.set_x(r, world.model(0).x.read());
      world.start();
      std::int64_t before = 0;
      for (std::int32_t deaths = 0; deaths < 1 + static_cast<std::int32_t>(seed % 3); ++deaths) {
        before += static_cast<std::int64_t>(world.rng()() % 250);
        world.run_until(before);
        const std::vector<Rank>& up = world.members();
        world.kill(up[world.rng()() % up.size()],
                   seed % 3 == 0 ? OnTheWire::lost : OnTheWire::delivered);
        world.run_until(before += static_cast<std::int64_t>(world.rng()() % 20));
        world.change_members();
      }
      world.run();
      caught_up += world.caught_up();
      const Rank first = world.members().front();
      for (const Rank r : world.members()) {
        ASSERT_TRUE(world.finished(r)) << "rank " << r;
        const auto counts = counts_of(world, r);
        const auto of = [&counts](EventKind kind) {
          const auto found = counts.find(kind);
          return found == counts.end() ? 0 : found->second;
        };
        EXPECT_EQ(of(EventKind::committed) + of(EventKind::dropped), world.given(r))
            << "rank " << r;
        EXPECT_EQ(of(EventKind::wait_begin), of(EventKind::wait_end)) << "rank " << r;
        EXPECT_TRUE(at::isfinite(world.z(r)).all().item<bool>()) << "rank " << r;
        if (config.plan.role->replicates) {
          EXPECT_EQ(distance(world.z(r), world.z(first)), 0) << "rank " << r;
        }
      }
    }
  EXPECT_GT(caught_up, 10) << "no rank was behind: nothing was tested";
}

// Push-sum: what the others lack is what the dead ranks had, and what was lost on the way from them
// and to them.
TEST(ChangedMembers, GossipKeepsAllMassButThatOfTheDead) {
  for (const Keys& keys : std::vector<Keys>{{},
                                            {{"overlap", "true"}},
                                            {{"overlap", "true"}, {"staleness", "2"}},
                                            {{"overlap", "true"}, {"local_steps", "3"}},
                                            {{"peers", "2"}}})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(name_of(keys) + ", seed=" + std::to_string(seed));
      const std::int32_t n = 6;
      RoleWorld world(make_config(sim::operator+({{"exchange", "gossip"}}, keys), n, seed), pull);
      scatter(world, n, kDimension);
      const at::Tensor x0 = world.total_x();
      const auto check = [&] {
        ASSERT_NEAR(world.total_w() + world.lost_w(), n, 1e-9);
        at::Tensor x = world.total_x() + world.lost_x();
        if (world.gradients().defined()) x += world.gradients() * kRate;
        ASSERT_LT((x - x0).abs().max().item<double>(), 1e-3 * n);
      };
      world.start();
      std::int64_t events = 0;
      for (int deaths = 0; deaths < 3; ++deaths) {
        world.run_until(events += static_cast<std::int64_t>(10 + world.rng()() % 60));
        const std::vector<Rank>& up = world.members();
        world.kill(up[world.rng()() % up.size()]);
        world.change_members();
        check();
      }
      world.run(check);
    }
}

// Equal models without a learning rate: whatever is lost, given again or counted, they stay as they
// are. (Their numbers have no rounding errors.)
TEST(ChangedMembers, AModelThatWasGivenCountsOnce) {
  std::int64_t caught_up = 0;
  for (const std::string steps : {"2", "3"})
    for (const std::string overlap : {"false", "true"})
      for (const std::string compress : {"fp16", "bf16"})
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
          SCOPED_TRACE("local_steps=" + steps + " overlap=" + overlap + " compress=" + compress +
                       " seed=" + std::to_string(seed));
          const std::int32_t n = 4;
          WorldConfig config = make_config({{"exchange", "aggregate"},
                                            {"pack", "model"},
                                            {"local_steps", steps},
                                            {"overlap", overlap},
                                            {"compress", compress}},
                                           n, seed);
          config.lr = 0;
          RoleWorld world(config, pull);
          const at::Tensor x = at::arange(1, kDimension + 1, at::kFloat);
          for (Rank r = 0; r < n; ++r) world.set_x(r, x);
          world.start();
          world.run_until(static_cast<std::int64_t>(world.rng()() % 400));
          world.kill(world.members()[world.rng()() % n], OnTheWire::lost);
          world.run_until(1'000'000);  // as far as it goes without the dead one
          world.change_members();
          world.run();
          caught_up += world.caught_up();
          for (const Rank r : world.members()) {
            ASSERT_LT(distance(world.z(r), x), 1e-3) << "rank " << r;
          }
        }
  EXPECT_GT(caught_up, 10) << "no rank was behind: nothing was tested";
}

// Where fast ranks take over from slow ones a loss costs no more than the share of the lost rank.
TEST(ChangedMembers, PairsTakeTheStepsThatAreLeft) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const std::int32_t n = 4;
    WorldConfig config =
        make_config({{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}}, n, seed);
    config.horizon = {100, 25};
    for (Rank r = 1; r < n; ++r) config.slowness[r] = 0.9;  // rank 0 is far ahead
    RoleWorld world(config, pull);
    scatter(world, n, kDimension);
    world.start();
    world.run_until(300);
    world.kill(3);
    double given = 0;
    for (Rank r = 0; r < n; ++r) given += static_cast<double>(world.given(r));
    world.change_members();
    world.run();
    double all = static_cast<double>(world.given(3));
    for (const Rank r : world.members()) all += static_cast<double>(world.given(r));
    const double left = 100 - given / n;  // of each rank, in the mean
    EXPECT_GE(all - given, left * (n - 1) - 2 * n);
    EXPECT_LE(all - given, left * (n - 1) + 10 * n);
  }
}

// A schedule of peers continues at the epoch of the run.
TEST(ChangedMembers, PeersFollowTheEpochsOfTheRun) {
  const std::int32_t n = 6;
  WorldConfig config = make_config({{"exchange", "gossip"}, {"peers", "0:1,1:2"}}, n, 1);
  RoleWorld world(config, pull);
  scatter(world, n, kDimension);
  world.start();
  while (world.model(0).epoch < 2) ASSERT_TRUE(world.step());
  world.kill(5);
  world.change_members();
  std::map<std::pair<Rank, std::int64_t>, int> sent;  // by rank and round
  world.watch([&sent](const Envelope& envelope, bool delivered) {
    const auto* share = std::get_if<Share>(&envelope.payload);
    // The last rounds leave out those that have ended.
    if (share != nullptr && !delivered && share->round < 6) ++sent[{envelope.from, share->round}];
  });
  world.run();
  ASSERT_GT(sent.size(), 10U);
  for (const auto& [place, shares] : sent)
    EXPECT_EQ(shares, 2) << "rank " << place.first << ", round " << place.second;
}

// Symmetric weights: an edge counts at both its ends or at none.
TEST(ChangedMembers, SymmetricGossipKeepsAllWeightsAndTheMeanOfTheModels) {
  int tested = 0;
  for (const Keys& keys : std::vector<Keys>{
           {{"update", "after"}},
           {{"update", "before"}},
           {{"overlap", "true"}, {"staleness", "1"}},
           {{"overlap", "true"}, {"local_steps", "3"}},
           {{"overlap", "true"}, {"staleness", "2"}, {"compress", "top-k"}, {"density", "0.3"}},
           {{"topology", "star"}}})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(name_of(keys) + ", seed=" + std::to_string(seed));
      const Keys gossip = {{"exchange", "gossip"}, {"averaging", "symmetric"}};
      WorldConfig config = make_config(sim::operator+(gossip, keys), 6, seed);
      config.lr = 0;
      RoleWorld world(config, pull);
      scatter(world, 6, kDimension);
      const at::Tensor before = world.total_x();
      world.start();
      std::int64_t events = 0;
      for (int changes = 0; changes < 4; ++changes) {
        world.run_until(events += static_cast<std::int64_t>(10 + world.rng()() % 60));
        world.change_members();  // of nobody: rounds that are open end where they are
        EXPECT_LT(distance(world.total_x(), before), 1e-4);
        EXPECT_NEAR(world.total_w(), 6, 1e-9);
      }
      // A rank that has ended keeps what the dead one gave to it.
      bool ended = false;
      for (const Rank r : world.members()) ended = ended || world.finished(r);
      world.kill(world.members()[world.rng()() % 6]);
      world.change_members();
      if (!ended) {
        EXPECT_NEAR(world.total_w(), 5, 1e-9);
      }
      world.run();
      tested += ended ? 0 : 1;
    }
  EXPECT_GT(tested, 20);
}

// A naive oracle: x <- x - lr * mean of the gradients at x of the members of that step.
TEST(ChangedMembers, AggregateTakesTheMeanOfThePresentMembers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const std::int32_t n = 5;
    const WorldConfig config = make_config({{"exchange", "aggregate"}}, n, seed);
    RoleWorld world(config, pull);
    world.start();
    std::vector<std::pair<Step, std::vector<Rank>>> views = {{0, world.members()}};
    std::int64_t events = 0;
    for (int deaths = 0; deaths < 2; ++deaths) {
      world.run_until(events += static_cast<std::int64_t>(world.rng()() % 400));
      const std::vector<Rank>& up = world.members();
      world.kill(up[world.rng()() % up.size()]);
      world.change_members();
      views.emplace_back(world.parts()->horizon.first_step, world.members());
    }
    world.run();
    const Step steps = world.parts()->horizon.steps;
    double x = 0, samples = 0;
    std::size_t view = 0;
    for (Step step = 0; step < steps; ++step) {
      while (view + 1 < views.size() && views[view + 1].first <= step) ++view;
      double sum = 0;
      for (const Rank r : views[view].second) sum += x - r;
      x -= kRate * sum / static_cast<double>(views[view].second.size());
      samples += static_cast<double>(views[view].second.size());
    }
    EXPECT_NEAR(world.z(world.members().front())[0].item<double>(), x, 1e-5);
    if (config.horizon.by_samples) {
      EXPECT_NEAR(samples, static_cast<double>(config.horizon.steps * n), n)
          << "the samples of lost ranks are not dealt anew";
    } else {
      EXPECT_EQ(steps, 24);
    }
  }
}

// Each gradient has a direction of its own. Where one has entered the common model it has the share
// of one rank among those that were there, whatever became of the operation that it was in.
TEST(ChangedMembers, GradientsCountOnceInTheCommonModel) {
  constexpr std::int32_t kRanks = 4;
  constexpr Step kMostSteps = 60;
  const auto direction = [](Rank rank, Step step) { return rank * kMostSteps + step; };
  const auto aggregate = [](const Keys& keys) {
    return sim::operator+({{"exchange", "aggregate"}}, keys);
  };
  const auto partial = [](const Keys& keys) {
    return sim::operator+({{"exchange", "partial"}, {"activation", "quorum"}}, keys);
  };
  const Keys differences = {{"pack", "difference"}, {"local_steps", "4"}};
  const std::vector<Keys> all = {aggregate({}),
                                 aggregate({{"overlap", "true"}}),
                                 aggregate(differences),
                                 aggregate(sim::operator+(differences, {{"overlap", "true"}})),
                                 partial({{"quorum", "4"}}),
                                 partial(sim::operator+(differences, {{"quorum", "4"}})),
                                 partial(sim::operator+(differences, {{"quorum", "2"}}))};
  std::int64_t caught_up = 0;
  for (const Keys& keys : all)
    for (std::uint64_t seed = 1; seed <= 150; ++seed) {
      SCOPED_TRACE(name_of(keys) + ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(keys, kRanks, seed);
      config.dimension = kRanks * kMostSteps;
      RoleWorld world(config, [&](Rank rank, Step step, const at::Tensor& z) {
        at::Tensor g = at::zeros_like(z);
        g[direction(rank, step)] = 1;
        return g;
      });
      world.start();
      world.run_until(static_cast<std::int64_t>(world.rng()() % 300));
      const auto dead = static_cast<Rank>(seed % kRanks);
      world.kill(dead, OnTheWire::lost);
      world.run_until(world.event_count() + static_cast<std::int64_t>(world.rng()() % 20));
      world.change_members();
      world.run();
      for (const Rank rank : world.members())
        for (const Event& event : world.events(rank)) {
          if (event.kind != EventKind::committed) continue;
          const double share =
              -world.z(rank)[direction(rank, event.stamp.step)].item<double>() / kRate * kRanks;
          // A quorum may divide by all ranks what few have given.
          EXPECT_LT(share, 1.4) << "rank " << rank << ", step " << event.stamp.step;
          EXPECT_GT(share, 0.9) << "rank " << rank << ", step " << event.stamp.step;
        }
      caught_up += world.caught_up();
      if (::testing::Test::HasFailure()) return;
    }
  EXPECT_GT(caught_up, 50);
}

// Biased weights: what an open round has given away, or given twice, counts for nothing.
TEST(ChangedMembers, BiasedModelsKeepTheirSize) {
  for (const Keys& more : std::vector<Keys>{{}, {{"overlap", "true"}}, {{"local_steps", "2"}}})
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      const Keys keys = sim::operator+({{"exchange", "gossip"}, {"averaging", "biased"}}, more);
      SCOPED_TRACE(name_of(keys) + ", seed=" + std::to_string(seed));
      RoleWorld world(make_config(keys, 4, seed),
                      [](Rank, Step, const at::Tensor& z) { return at::zeros_like(z); });
      const at::Tensor start = at::full({kDimension}, 8.0);
      world.begin_at(start);
      world.start();
      world.run_until(static_cast<std::int64_t>(world.rng()() % 150));
      if (seed % 2 == 0) world.kill(static_cast<Rank>(seed / 2 % 4));
      world.change_members();
      for (const Rank rank : world.members()) EXPECT_LT(distance(world.z(rank), start), 1e-5);
      world.run();
      for (const Rank rank : world.members()) EXPECT_LT(distance(world.z(rank), start), 1e-5);
      if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace changed_members_test
}  // namespace grapevine
