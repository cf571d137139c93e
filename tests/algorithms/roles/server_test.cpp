// Parameter servers and their clients: fairness, conservation, staleness, stalls and deaths, with
// messages in flight (Hermans & Louppe 2018; Dean et al. 2012; Zhang et al. 2015, 2016).
#include <gtest/gtest.h>

#include <cmath>

#include "algorithms/parts/service_meter.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace server_test {

using sim::distance;
using sim::Keys;
using sim::RoleWorld;
using sim::WorldConfig;

Plan make_plan(const std::string& rule, const Keys& keys = {}) {
  return sim::plan_of(sim::operator+({{"exchange", "server"}, {"rule", rule}}, keys));
}

WorldConfig make_config(const Plan& plan, std::int32_t n, std::uint64_t seed = 1) {
  WorldConfig config;
  config.plan = plan;
  config.ranks = n;
  config.seed = seed;
  config.dimension = 7;
  config.horizon.steps = 20;
  config.horizon.steps_per_epoch = 5;
  config.lr = 0.125;
  return config;
}

at::Tensor pull(Rank rank, Step, const at::Tensor& z) { return z - static_cast<double>(rank + 1); }
// Whole numbers, whatever z is: no sum is rounded.
at::Tensor whole(Rank rank, Step step, const at::Tensor& z) {
  return at::full_like(z, static_cast<double>(8 * (rank + 1) - 16 * (step % 3)));
}

std::string describe(const std::string& what, std::int32_t n, std::uint64_t seed) {
  return what + ", n=" + std::to_string(n) + ", seed=" + std::to_string(seed);
}

at::Tensor theta(const RoleWorld& world, const WorldConfig& config) {
  std::vector<at::Tensor> slices;
  for (std::int32_t s = 0; s < config.plan.servers; ++s)
    slices.push_back(world.z(config.ranks + s));
  return at::cat(slices);
}

std::int64_t count(const RoleWorld& world, Rank rank, EventKind kind) {
  std::int64_t n = 0;
  for (const Event& event : world.events(rank)) n += event.kind == kind;
  return n;
}

void run_to_the_end(RoleWorld& world, const WorldConfig& config) {
  world.start();
  world.run();
  for (Rank r = 0; r < config.ranks + config.plan.servers; ++r)
    EXPECT_TRUE(world.finished(r)) << "rank " << r;
}

struct Case {
  std::string rule;
  Keys keys;
};
std::vector<Case> all_cases() {
  return {{"gem", {}},
          {"gem", {{"servers", "3"}}},
          {"gem", {{"section", "relaxed"}, {"servers", "2"}}},
          {"downpour", {}},
          {"downpour", {{"local_steps", "3"}, {"servers", "2"}}},
          {"adaptive", {{"servers", "2"}}},
          {"agn", {{"local_steps", "4"}}},
          {"easgd", {{"local_steps", "3"}, {"servers", "2"}}},
          {"easgd", {{"synchronous", "true"}}}};
}

// What goes to and fro between clients and servers, as an outsider sees it.
struct Watcher {
  explicit Watcher(RoleWorld& world, const WorldConfig& config)
      : servers(static_cast<std::size_t>(config.plan.servers)), clients(config.ranks) {
    world.watch([this](const Envelope& e, bool delivered) { see(e, delivered); });
  }
  struct OneServer {
    std::vector<std::pair<Rank, std::int64_t>> asked, granted;  // in their order
    std::set<Rank> inside;                                      // granted, and no commit came
    std::size_t most_inside = 0;
    at::Tensor sum;  // of accepted commits, double
    std::map<std::pair<Rank, std::int64_t>, at::Tensor> commits;
  };

  void see(const Envelope& e, bool delivered) {
    if (delivered && e.to >= clients) {
      OneServer& s = servers[static_cast<std::size_t>(e.to - clients)];
      if (const auto* ask = std::get_if<Ask>(&e.payload))
        s.asked.emplace_back(e.from, ask->exchange);
      if (const auto* commit = std::get_if<Commit>(&e.payload)) {
        s.inside.erase(e.from);
        s.commits[{e.from, commit->exchange}] = commit->update.read().to(at::kDouble);
      }
    }
    if (!delivered && e.from >= clients) {
      OneServer& s = servers[static_cast<std::size_t>(e.from - clients)];
      if (const auto* grant = std::get_if<Grant>(&e.payload)) {
        s.granted.emplace_back(e.to, grant->exchange);
        s.inside.insert(e.to);
        s.most_inside = std::max(s.most_inside, s.inside.size());
      }
      if (const auto* receipt = std::get_if<Receipt>(&e.payload); receipt && receipt->accepted) {
        const at::Tensor& update = s.commits.at({e.to, receipt->exchange});
        s.sum = s.sum.defined() ? s.sum + update : update;
      }
    }
  }
  at::Tensor sum() const {
    std::vector<at::Tensor> sums;
    for (const OneServer& s : servers) sums.push_back(s.sum);
    return at::cat(sums);
  }

  std::vector<OneServer> servers;
  Rank clients;
};

// ---- one worker ----

// A constant gradient: each commit leaves theta where the proxy would be, seen from a copy that
// does not hold the commit before it.
TEST(Server, OneGemWorkerIsNotMomentumSgd) {
  WorldConfig config = make_config(make_plan("gem"), 1);
  config.optimizer.momentum = 0.9;
  config.horizon.steps = 6;
  RoleWorld world(config, [](Rank, Step, const at::Tensor& z) { return -at::ones_like(z); });
  Watcher watcher(world, config);
  run_to_the_end(world, config);
  const std::vector<double> published = {1, 0.9, 1.81, 1.629};
  double m = 0, gap = 0;
  for (std::int64_t k = 1; k <= 6; ++k) {
    m = 0.9 * m + 1;
    const double expected = m - gap;
    gap = expected;
    const at::Tensor commit = watcher.servers[0].commits.at({0, k});
    EXPECT_LT(distance(commit, at::full({7}, 0.125 * expected)), 1e-5) << k;
    if (k <= 4) {
      EXPECT_NEAR(expected, published[static_cast<std::size_t>(k - 1)], 5e-3);
    }
  }
}

// Whatever the window, and for a staleness of 0 also the adaptive rule.
TEST(Server, OneWorkerOfTheOtherRulesIsSgd) {
  for (const Case& c : std::vector<Case>{{"downpour", {}},
                                         {"downpour", {{"local_steps", "3"}}},
                                         {"downpour", {{"servers", "3"}, {"local_steps", "20"}}},
                                         {"adaptive", {{"local_steps", "2"}}},
                                         {"agn", {}}}) {
    SCOPED_TRACE(c.rule);
    const WorldConfig config = make_config(make_plan(c.rule, c.keys), 1);
    RoleWorld world(config, pull);
    run_to_the_end(world, config);
    const double expected = 1 - std::pow(1 - 0.125, 20);
    EXPECT_LT(distance(theta(world, config), at::full({7}, expected)), 1e-5);
  }
}

// AGN: the sum of a window over its length.
TEST(Server, AgnCommitsTheMeanOfItsWindow) {
  const WorldConfig config = make_config(make_plan("agn", {{"local_steps", "4"}}), 1);
  RoleWorld world(config, [](Rank, Step step, const at::Tensor& z) {
    return at::full_like(z, -8.0 * static_cast<double>(step % 4));
  });
  Watcher watcher(world, config);
  run_to_the_end(world, config);
  ASSERT_EQ(watcher.servers[0].commits.size(), 5U);
  for (const auto& [key, commit] : watcher.servers[0].commits)
    EXPECT_TRUE(at::equal(commit, at::full({7}, 1.5, at::kDouble)));
}

// ---- conservation ----

TEST(Server, ThetaIsTheSumOfAllCommits) {
  for (const Case& c : all_cases())
    for (const std::int32_t n : {1, 2, 5, 12})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        if (c.rule == "adaptive" || c.rule == "easgd") continue;  // what is added is not the commit
        SCOPED_TRACE(describe(c.rule, n, seed));
        WorldConfig config = make_config(make_plan(c.rule, c.keys), n, seed);
        config.optimizer.momentum = c.rule == "gem" ? 0.9 : 0;
        config.slowness[0] = 0.9;
        RoleWorld world(config, pull);
        Watcher watcher(world, config);
        run_to_the_end(world, config);
        EXPECT_LT(distance(theta(world, config), watcher.sum()), 1e-5 * n);
        for (Rank r = 0; r < n; ++r) EXPECT_EQ(count(world, r, EventKind::committed), 20);
      }
}

TEST(Server, DownpourAppliesEveryGradientOnceExactly) {
  for (const std::int32_t n : {1, 3, 8})
    for (const std::string window : {"1", "3"})
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(describe("window " + window, n, seed));
        const WorldConfig config = make_config(
            make_plan("downpour", {{"local_steps", window}, {"servers", "2"}}), n, seed);
        RoleWorld world(config, whole);
        run_to_the_end(world, config);
        EXPECT_TRUE(at::equal(theta(world, config).to(at::kDouble), world.gradients() * -0.125));
      }
}

// x - e and theta + e: what is not a gradient moves, and does not grow.
TEST(Server, ElasticAveragingConservesTheSum) {
  for (const Case& c : all_cases())
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      if (c.rule != "easgd") continue;
      SCOPED_TRACE(describe(c.rule, 4, seed));
      const WorldConfig config = make_config(make_plan(c.rule, c.keys), 4, seed);
      RoleWorld world(config, whole);
      run_to_the_end(world, config);
      at::Tensor sum = theta(world, config).to(at::kDouble);
      for (Rank r = 0; r < 4; ++r) sum += world.z(r).to(at::kDouble);
      EXPECT_LT(distance(sum, world.gradients() * -0.125), 1e-4);
    }
}

// Zhang et al. 2015, equations 3 and 4, in double precision; the order of arrival changes no bit.
TEST(Server, SynchronousElasticAveragingFollowsItsEquations) {
  constexpr int kRanks = 3;
  at::Tensor first;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const WorldConfig config = make_config(
        make_plan("easgd", {{"synchronous", "true"}, {"local_steps", "2"}, {"elasticity", "0.6"}}),
        kRanks, seed);
    RoleWorld world(config, pull);
    run_to_the_end(world, config);
    std::array<double, kRanks> x{};
    double centre = 0;
    for (int step = 1; step <= 20; ++step) {
      for (int r = 0; r < kRanks; ++r) x[r] -= 0.125 * (x[r] - (r + 1));
      if (step % 2 != 0) continue;
      double moved = 0;
      for (double& value : x) {
        const double e = 0.2 * (value - centre);
        value -= e;
        moved += e;
      }
      centre += moved;
    }
    EXPECT_LT(distance(theta(world, config), at::full({7}, centre)), 1e-5);
    for (int r = 0; r < kRanks; ++r)
      EXPECT_LT(distance(world.z(r), at::full({7}, x[r])), 1e-5) << r;
    if (!first.defined()) first = theta(world, config);
    EXPECT_TRUE(at::equal(theta(world, config), first));
  }
}

// Elementwise rules: how the parameters are cut changes no bit.
TEST(Server, ShardsDoNotChangeASingleWorker) {
  for (const std::string rule : {"gem", "downpour", "easgd"}) {
    SCOPED_TRACE(rule);
    std::vector<at::Tensor> ends;
    for (const std::string servers : {"1", "3", "7", "9"}) {
      WorldConfig config = make_config(make_plan(rule, {{"servers", servers}}), 1);
      config.optimizer.momentum = 0.5;
      RoleWorld world(config, [](Rank, Step step, const at::Tensor& z) {
        return z * 0.3 - at::arange(7, at::kFloat) * static_cast<double>(step % 4);
      });
      run_to_the_end(world, config);
      ends.push_back(theta(world, config));
    }
    for (const at::Tensor& end : ends) EXPECT_TRUE(at::equal(end, ends.front()));
  }
}

// ---- staleness ----

// Counted by an outsider: commits of others accepted between a client's pull and its commit.
TEST(Server, StalenessCountsTheCommitsOfOthersSinceThePull) {
  for (const Case& c : all_cases())
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      constexpr std::int32_t kRanks = 5;
      SCOPED_TRACE(describe(c.rule, kRanks, seed));
      WorldConfig config = make_config(make_plan(c.rule, c.keys), kRanks, seed);
      config.slowness[2] = 0.95;
      RoleWorld world(config, pull);
      run_to_the_end(world, config);
      for (Rank server = kRanks; server < kRanks + config.plan.servers; ++server) {
        std::vector<Rank> order;  // of commits
        for (const Event& event : world.events(server)) {
          if (event.kind != EventKind::applied) continue;
          std::int64_t others = 0;
          for (auto i = static_cast<std::size_t>(event.stamp.version); i < order.size(); ++i)
            others += order[i] != event.peer;
          ASSERT_EQ(event.staleness, others);
          order.push_back(event.peer);
        }
        EXPECT_GE(order.size(),
                  kRanks * 20U / static_cast<std::size_t>(config.plan.local.steps.by_epoch.at(0)));
      }
    }
}

// ---- fairness ----

std::size_t bypasses(const Watcher::OneServer& server, std::size_t i, Rank other) {
  std::size_t place = 0;
  while (server.granted[place] != server.asked[i]) ++place;
  std::size_t count = 0;
  for (std::size_t j = 0; j < place; ++j) {
    if (server.granted[j].first != other) continue;
    const auto asked = std::find(server.asked.begin(), server.asked.end(), server.granted[j]);
    count += asked - server.asked.begin() > static_cast<std::ptrdiff_t>(i);
  }
  return count;
}

// Whatever the order in which requests arrive, it is that of service; each is served once; nobody
// who came later goes first, so that n - 1 bound every wait.
TEST(Server, ServesInTheOrderOfArrival) {
  for (const std::int32_t n : {2, 3, 8, 20})
    for (const std::string servers : {"1", "2"})
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE(describe("gem on " + servers, n, seed));
        WorldConfig config = make_config(make_plan("gem", {{"servers", servers}}), n, seed);
        config.slowness[0] = 0.99;  // and the others run ahead
        config.slowness[1] = 0.8;
        RoleWorld world(config, pull);
        Watcher watcher(world, config);
        run_to_the_end(world, config);
        for (const Watcher::OneServer& server : watcher.servers) {
          EXPECT_EQ(server.granted, server.asked);
          EXPECT_EQ(server.granted.size(), 20U * static_cast<std::size_t>(n));
          EXPECT_EQ(std::set(server.granted.begin(), server.granted.end()).size(),
                    server.granted.size());
          EXPECT_EQ(server.most_inside, 1U) << "two clients between pull and commit";
          for (std::size_t i = 0; i < server.asked.size(); i += 7)
            for (Rank other = 0; other < n; ++other)
              EXPECT_EQ(bypasses(server, i, other), 0U) << "by rank " << other;
        }
        for (Rank server = n; server < n + config.plan.servers; ++server)
          EXPECT_EQ(*world.role(server).measures().integer("inversions"), 0);
      }
}

TEST(Server, RelaxedSectionsOverlap) {
  WorldConfig config = make_config(make_plan("gem", {{"section", "relaxed"}}), 8, 3);
  RoleWorld world(config, pull);
  Watcher watcher(world, config);
  run_to_the_end(world, config);
  EXPECT_GT(watcher.servers[0].most_inside, 1U);
  EXPECT_EQ(watcher.servers[0].granted, watcher.servers[0].asked);
}

// ---- stalls and deaths ----

// Brings the world to where `client` has a grant and has not committed.
bool stall_inside(RoleWorld& world, const Watcher& watcher, Rank client) {
  while (watcher.servers[0].inside.count(client) == 0)
    if (!world.step()) return false;
  world.stall(client);
  return true;
}

TEST(Server, AClientThatStallsInsideLosesItsTurnAndNothingElse) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    constexpr std::int32_t kRanks = 4;
    SCOPED_TRACE(describe("gem", kRanks, seed));
    // 300 ns are 300 events.
    WorldConfig config = make_config(make_plan("gem"), kRanks, seed);
    sim::set_section_timeout(config.plan, 300e-9);
    RoleWorld world(config, pull);
    Watcher watcher(world, config);
    world.start();
    const Rank slow = static_cast<Rank>(seed) % kRanks;
    ASSERT_TRUE(stall_inside(world, watcher, slow));
    const std::size_t before = watcher.servers[0].granted.size();
    const std::int64_t since = world.event_count();
    while (watcher.servers[0].granted.size() == before && world.step()) {
    }
    EXPECT_GT(watcher.servers[0].granted.size(), before) << "the others wait for ever";
    EXPECT_LE(world.event_count() - since, 301);
    // The others come to their end without it.
    world.run();
    for (Rank r = 0; r < kRanks; ++r) EXPECT_EQ(world.finished(r), r != slow) << "rank " << r;
    world.go_on(slow);
    world.run();
    for (Rank r = 0; r <= kRanks; ++r) EXPECT_TRUE(world.finished(r)) << "rank " << r;
    EXPECT_EQ(count(world, slow, EventKind::dropped), 1);
    EXPECT_EQ(count(world, slow, EventKind::committed), 19);
    EXPECT_EQ(*world.role(kRanks).measures().integer("refused"), 1);
    EXPECT_EQ(*world.role(kRanks).measures().integer("taken_back"), 1);
    EXPECT_EQ(*world.role(kRanks).measures().integer("commits"), 79);
    EXPECT_LT(distance(theta(world, config), watcher.sum()), 1e-5) << "a refused commit is in it";
  }
}

TEST(Server, ADeadClientHoldsUpNobody) {
  for (const Case& c : all_cases())
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      constexpr std::int32_t kRanks = 5;
      SCOPED_TRACE(describe(c.rule, kRanks, seed));
      WorldConfig config = make_config(make_plan(c.rule, c.keys), kRanks, seed);
      RoleWorld world(config, pull);
      Watcher watcher(world, config);
      world.start();
      const Rank dead = static_cast<Rank>(seed) % kRanks;
      if (c.rule == "gem" && seed % 2 == 0) {
        ASSERT_TRUE(stall_inside(world, watcher, dead));
      } else {
        const auto when = static_cast<std::int64_t>(world.rng()() % 200);
        world.run_until(when);
      }
      world.kill(dead);
      world.run();
      for (Rank r = 0; r < kRanks + config.plan.servers; ++r) {
        if (r == dead) continue;
        EXPECT_TRUE(world.finished(r)) << "rank " << r;
        if (r < kRanks) {
          EXPECT_EQ(count(world, r, EventKind::committed), 20) << "rank " << r;
        }
      }
    }
}

// ---- checkpoints ----

TEST(Server, SaveAndLoadAtAnyMomentLosesNothing) {
  for (const Case& c : all_cases())
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      constexpr std::int32_t kRanks = 4;
      SCOPED_TRACE(describe(c.rule, kRanks, seed));
      WorldConfig config = make_config(make_plan(c.rule, c.keys), kRanks, seed);
      config.optimizer.momentum = c.rule == "gem" ? 0.9 : 0;
      RoleWorld world(config, pull);
      Watcher watcher(world, config);
      world.start();
      const auto when = static_cast<std::int64_t>(1 + world.rng()() % 250);
      world.run_until(when);
      const at::Tensor before = theta(world, config);
      world.save_and_load();
      EXPECT_TRUE(at::equal(theta(world, config), before));
      world.run();
      for (Rank r = 0; r < kRanks + config.plan.servers; ++r)
        EXPECT_TRUE(world.finished(r)) << "rank " << r;
      for (Rank r = 0; r < kRanks; ++r)
        EXPECT_EQ(count(world, r, EventKind::committed), 20) << "rank " << r;
      if (c.rule != "adaptive" && c.rule != "easgd") {
        EXPECT_LT(distance(theta(world, config), watcher.sum()), 1e-5);
      }
    }
}

// The clock goes by these: one that is off would end training everywhere.
TEST(Server, CommitsOfGradientsThatCannotBeEndTheRun) {
  for (const std::string rule : {"gem", "downpour", "agn"})
    for (const std::int64_t gradients :
         {std::int64_t{0}, std::int64_t{-1}, std::int64_t{6}, std::int64_t{1} << 60}) {
      SCOPED_TRACE(rule + ", " + std::to_string(gradients));
      const Keys window = rule == "agn" ? Keys{{"local_steps", "5"}} : Keys{};
      RoleWorld world(make_config(make_plan(rule, window), 3), pull);
      world.tamper([gradients](Envelope& envelope) {
        if (auto* commit = std::get_if<Commit>(&envelope.payload)) commit->gradients = gradients;
      });
      world.start();
      EXPECT_THROW(world.run(), InvariantBroken);
    }
}

// ---- wirings ----

TEST(Server, RefusesPartsThatDoNotFit) {
  const auto says = [&](const Keys& keys, const std::string& text) {
    EXPECT_NE(sim::refusal_of(keys).find(text), std::string::npos) << sim::refusal_of(keys);
  };
  says({{"exchange", "gossip"}, {"servers", "2"}}, "it belongs to server");
  says({{"exchange", "server"}, {"local_steps", "2"}},
       "belongs to downpour, adaptive, agn, easgd and delayed-nesterov");
  says({{"exchange", "server"}, {"rule", "agn"}, {"kappa", "2"}}, "choose rule = 'gem'");
  says({{"exchange", "server"}, {"rule", "gem"}, {"synchronous", "true"}}, "belongs to easgd");
  says({{"exchange", "server"}, {"kappa", "-1"}}, "expected a number, at least 0");
  says({{"exchange", "server"}, {"section_timeout", "0"}}, "expected a number");
  says({{"exchange", "server"}, {"section_timeout", "1e12"}}, "at most 1e+06");
  says({{"exchange", "server"}, {"topology", "ring"}}, "belongs to gossip");
  says({{"exchange", "server"}, {"clip_at", "sum"}}, "it belongs to aggregate and partial");
  OptimizerConfig adam;
  adam.name = "adam";
  const auto parts = make_parts(make_plan("gem"), {}, *LrSchedule::make({}), adam, 2);
  ASSERT_FALSE(parts);
  EXPECT_NE(parts.error().message.find("use sgd"), std::string::npos) << parts.error().message;
  EXPECT_TRUE(make_parts(make_plan("easgd"), {}, *LrSchedule::make({}), adam, 2));
}

// ---- the meter ----

TEST(ServiceMeter, JainsIndexOfKnownCounts) {
  EXPECT_DOUBLE_EQ(jain_index({4, 4, 4, 4}), 1);
  EXPECT_DOUBLE_EQ(jain_index({9, 0, 0}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(jain_index({2, 1}), 9.0 / 10);
  EXPECT_DOUBLE_EQ(jain_index({0, 0}), 1);
}

TEST(ServiceMeter, WindowsSeeWhatTheWholeRunHides) {
  ServiceMeter fair(4), unfair(4);
  for (std::int64_t i = 0; i < 800; ++i) {
    fair.served(static_cast<std::int32_t>(i % 4), i, Duration(1000));
    unfair.served(static_cast<std::int32_t>(i / 200), i, Duration(1000));  // in turns of 200
  }
  EXPECT_NEAR(*fair.measures().number("jain_min"), 1, 1e-9);
  EXPECT_NEAR(*unfair.measures().number("jain_min"), 0.25, 1e-9);
  EXPECT_LT(*unfair.measures().number("jain_mean"), 0.4);
  unfair.client_left();
  const auto windows = *unfair.measures().integer("windows");
  unfair.served(0, 800, Duration(1000));
  EXPECT_EQ(*unfair.measures().integer("windows"), windows);
}

TEST(ServiceMeter, CountsInversionsWaitsAndOccupancy) {
  ServiceMeter meter(2);
  for (const std::int64_t arrival : {0, 2, 1, 3}) meter.served(0, arrival, from_seconds(0.001));
  for (int i = 0; i < 96; ++i) meter.served(1, 4 + i, from_seconds(0.1));
  const StateDict measures = meter.measures();
  EXPECT_EQ(*measures.integer("inversions"), 1);
  EXPECT_NEAR(*measures.number("wait_p50_s"), 0.1, 0.02);
  EXPECT_DOUBLE_EQ(*measures.number("wait_max_s"), 0.1);
  EXPECT_EQ(*measures.integer("served"), 100);
  meter.occupied(Timestamp(0), Timestamp(30));
  meter.occupied(Timestamp(20), Timestamp(40));  // overlaps: 10 more
  meter.occupied(Timestamp(60), Timestamp(100));
  EXPECT_NEAR(*meter.measures().number("occupancy"), 0.8, 1e-12);
}

}  // namespace server_test
}  // namespace grapevine
