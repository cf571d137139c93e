// Parameter servers under pressure: turns that are taken back by some of several servers, restarts
// with turns open, updates of every age, windows that do not divide a run, rounds in any order.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "algorithms/parts/outstanding_commits.hpp"
#include "algorithms/parts/service_queue.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace disagreeing_servers_test {

using sim::Keys;
using sim::RoleWorld;
using sim::WorldConfig;
using sim::operator+;

const std::vector<Rank> kClients = {2, 3, 5};

WorldConfig config_of(const std::string& rule, const Keys& keys, std::int32_t n,
                      std::uint64_t seed) {
  WorldConfig config;
  config.plan = sim::plan_of(Keys{{"exchange", "server"}, {"rule", rule}} + keys);
  config.ranks = n;
  config.seed = seed;
  config.dimension = 7;
  config.horizon = {18, 5};
  config.lr = 0.125;
  return config;
}

at::Tensor pull(Rank rank, Step, const at::Tensor& z) { return z - static_cast<double>(rank + 1); }

std::int64_t count(const RoleWorld& world, Rank rank, EventKind kind) {
  std::int64_t n = 0;
  for (const Event& event : world.events(rank)) n += event.kind == kind;
  return n;
}

// ---- several servers that disagree ----

TEST(OutstandingCommits, OneRefusalRefusesWhateverTheOthersSayAndWhen) {
  for (std::size_t refusing = 0; refusing < 3; ++refusing)
    for (const bool saved : {false, true}) {
      SCOPED_TRACE(refusing);
      OutstandingCommits outstanding;
      outstanding.send(4, {7, 8}, 3);
      std::optional<OutstandingCommits::Outcome> outcome;
      for (std::size_t server = 0; server < 3; ++server) {
        EXPECT_FALSE(outcome) << "before all have answered";
        outcome = outstanding.on_receipt(4, server != refusing);
        if (!saved || server == 2) continue;
        OutstandingCommits loaded;
        ASSERT_TRUE(load_state(loaded, save_state(outstanding, 0), 3).ok());
        outstanding = std::move(loaded);
      }
      ASSERT_TRUE(outcome);
      EXPECT_TRUE(outcome->refused);
      EXPECT_EQ(outcome->steps, (std::vector<Step>{7, 8}));
    }
  OutstandingCommits outstanding;
  outstanding.send(4, {7}, 2);
  EXPECT_FALSE(outstanding.on_receipt(4, true));
  EXPECT_FALSE(outstanding.on_receipt(4, true)->refused);
}

// A gradient that one of the servers refused is in no common result: dropped, whoever spoke last.
TEST(Server, AGradientCountsOnlyWhereEveryServerTookIt) {
  std::int64_t refused_first = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    constexpr std::int32_t kRanks = 3;
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = config_of("gem", {{"servers", "2"}, {"section", "relaxed"}}, kRanks, seed);
    sim::set_section_timeout(config.plan, 60e-9);  // 60 events
    RoleWorld world(config, pull);
    std::map<std::pair<Rank, std::int64_t>, std::vector<bool>> answers;  // by client and exchange
    world.watch([&](const Envelope& e, bool delivered) {
      if (const auto* receipt = std::get_if<Receipt>(&e.payload); receipt && delivered)
        answers[{e.to, receipt->exchange}].push_back(receipt->accepted);
    });
    world.start();
    const Rank slow = static_cast<Rank>(seed) % kRanks;
    for (std::int64_t next = 20; world.step();) {
      if (world.event_count() < next) continue;
      if ((next / 100) % 2 == 0)
        world.stall(slow);
      else
        world.go_on(slow);
      next += 100;
    }
    world.go_on(slow);
    world.run();
    for (Rank rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
      std::int64_t dropped = 0;
      for (const auto& [key, accepted] : answers) {
        if (key.first != rank) continue;
        ASSERT_EQ(accepted.size(), 2U);
        dropped += !accepted[0] || !accepted[1];
        refused_first += !accepted[0] && accepted[1];
      }
      EXPECT_EQ(count(world, rank, EventKind::dropped), dropped) << "rank " << rank;
      EXPECT_EQ(count(world, rank, EventKind::committed), 18 - dropped) << "rank " << rank;
    }
  }
  EXPECT_GT(refused_first, 0) << "no exchange in which the last word was yes: nothing was tested";
}

// ---- restarts with turns open ----

TEST(CriticalSections, NumbersOfGrantsAreNeverUsedAgain) {
  CriticalSections before;
  std::set<TimerId> used;
  for (const Rank client : {2, 3, 5}) used.insert(before.open(client, 11));
  before.close(3);
  CriticalSections sections;
  ASSERT_TRUE(load_state(sections, save_state(before, kClients), kClients).ok());
  const TimerId next = sections.open(3, 12);
  EXPECT_TRUE(used.insert(next).second) << "grant " << next << " is there twice";
  EXPECT_EQ(sections.holder(next), 3);
  sections.close(2);
  sections.close(5);
  EXPECT_TRUE(used.insert(sections.open(5, 13)).second);
  EXPECT_EQ(used.size(), 5U);
}

TEST(ServiceQueue, CountsArrivalsAcrossARestart) {
  ServiceQueue queue;
  for (const Rank client : {2, 5}) {
    ServiceRequest request;
    request.client = client;
    queue.push(std::move(request));
  }
  EXPECT_EQ(queue.pop().arrival, 0);
  ServiceQueue loaded;
  ASSERT_TRUE(
      load_state(loaded, save_state(queue, std::nullopt, kClients), std::nullopt, kClients).ok());
  ServiceRequest request;
  request.client = 3;
  loaded.push(std::move(request));
  const ServiceRequest first = loaded.pop(), second = loaded.pop();
  EXPECT_EQ(first.client, 5);
  EXPECT_EQ(first.arrival, 1);
  EXPECT_EQ(second.client, 3);
  EXPECT_EQ(second.arrival, 2);
}

// A client that stalls inside holds up nobody for longer than its time, a restart in between or
// not.
TEST(Server, ATurnThatWasOpenAtARestartIsTakenBackInTime) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    constexpr std::int32_t kRanks = 4;
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = config_of("gem", {}, kRanks, seed);
    sim::set_section_timeout(config.plan, 300e-9);
    RoleWorld world(config, pull);
    const Rank slow = static_cast<Rank>(seed) % kRanks;
    bool inside = false;
    world.watch([&](const Envelope& e, bool delivered) {
      if (!delivered && e.to == slow && std::holds_alternative<Grant>(e.payload)) inside = true;
    });
    world.start();
    while (!inside && world.step()) {
    }
    world.stall(slow);
    world.save_and_load();
    world.run();
    for (Rank rank = 0; rank < kRanks; ++rank)
      EXPECT_EQ(world.finished(rank), rank != slow) << "rank " << rank;
    EXPECT_EQ(*world.role(kRanks).measures().integer("taken_back"), 1);
  }
}

// ---- deaths ----

// The others do not wait until the dead one's time is over, nor is its place in the queue served.
TEST(Server, TheTurnOfADeadClientEndsWithIt) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    constexpr std::int32_t kRanks = 4;
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const WorldConfig config = config_of("gem", {}, kRanks, seed);
    RoleWorld world(config, pull);
    const Rank dead = static_cast<Rank>(seed) % kRanks;
    std::int64_t asked = 0, granted = 0, granted_to_the_dead = 0;
    world.watch([&](const Envelope& e, bool delivered) {
      if (delivered && e.from == dead && std::holds_alternative<Ask>(e.payload)) ++asked;
      if (delivered || e.to != dead || !std::holds_alternative<Grant>(e.payload)) return;
      ++granted;
      granted_to_the_dead += world.has_heard(e.from, dead);
    });
    world.start();
    // Odd seeds: it waits in the queue; even ones: it has its turn.
    const bool waits = seed % 2 == 1;
    while (!(waits ? asked > 2 && asked > granted : granted > 2) && world.step()) {
    }
    world.kill(dead);
    world.run();
    for (Rank rank = 0; rank <= kRanks; ++rank)
      EXPECT_TRUE(rank == dead || world.finished(rank)) << "rank " << rank;
    EXPECT_EQ(granted_to_the_dead, 0);
    EXPECT_EQ(*world.role(kRanks).measures().integer("taken_back"), 0);
  }
}

// ---- staleness ----

// Zhang et al. 2016: theta <- theta + u / (tau + 1), tau counted by an outsider.
TEST(Server, TheAdaptiveRuleDividesByTheAgeAndOne) {
  std::map<std::int64_t, std::int64_t> ages;
  for (const std::string window : {"1", "2"})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      constexpr std::int32_t kRanks = 4;
      SCOPED_TRACE("window " + window + ", seed=" + std::to_string(seed));
      WorldConfig config =
          config_of("adaptive", {{"servers", "2"}, {"local_steps", window}}, kRanks, seed);
      config.slowness[2] = 0.9;
      RoleWorld world(config, pull);
      struct OneServer {
        at::Tensor theta;
        std::vector<Rank> order;  // of commits
      };
      std::map<Rank, OneServer> servers;
      world.watch([&](const Envelope& e, bool delivered) {
        const auto* commit = std::get_if<Commit>(&e.payload);
        const auto* receipt = std::get_if<Receipt>(&e.payload);
        if (delivered && commit != nullptr) {
          OneServer& server = servers[e.to];
          std::int64_t tau = 0;
          for (auto i = static_cast<std::size_t>(e.stamp.version); i < server.order.size(); ++i)
            tau += server.order[i] != e.from;
          ++ages[tau];
          const at::Tensor step =
              commit->update.read().to(at::kDouble) / static_cast<double>(tau + 1);
          server.theta = server.theta.defined() ? server.theta + step : step;
          server.order.push_back(e.from);
        }
        if (!delivered && receipt != nullptr) {
          ASSERT_TRUE(at::allclose(receipt->value.read().to(at::kDouble), servers[e.from].theta,
                                   1e-5, 1e-6))
              << receipt->value.read() << servers[e.from].theta;
        }
      });
      world.start();
      world.run();
      for (Rank server = kRanks; server < kRanks + 2; ++server)
        EXPECT_TRUE(
            at::allclose(world.z(server).to(at::kDouble), servers[server].theta, 1e-5, 1e-6));
    }
  for (const std::int64_t tau : {0, 1, 2, 3}) EXPECT_GT(ages[tau], 0) << "no update of age " << tau;
}

// ---- rounds and windows ----

// Sums of numbers that are rounded: the order of the sum shows, and is that of the ranks.
TEST(Server, SynchronousRoundsDoNotDependOnTheOrderOfArrival) {
  const auto uneven = [](Rank rank, Step step, const at::Tensor& z) {
    return z - (at::arange(z.numel(), at::kFloat) * 0.77 +
                (rank * 3.1 + 0.3 * static_cast<double>(step)))
                   .sin();
  };
  at::Tensor first;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    RoleWorld world(config_of("easgd", {{"synchronous", "true"}, {"local_steps", "2"}}, 6, seed),
                    uneven);
    world.start();
    world.run();
    if (!first.defined()) first = world.z(6);
    EXPECT_TRUE(at::equal(world.z(6), first)) << world.z(6) << first;
  }
}

// 18 steps, a window of 4: the last commit is the mean of two.
TEST(Server, AgnCommitsTheMeanOfAShorterLastWindow) {
  for (const std::int32_t n : {1, 3}) {
    RoleWorld world(config_of("agn", {{"local_steps", "4"}}, n, 1),
                    [](Rank, Step step, const at::Tensor& z) {
                      return at::full_like(z, -8.0 * static_cast<double>(step));
                    });
    std::map<Rank, std::vector<std::pair<std::int64_t, double>>> commits;
    world.watch([&](const Envelope& e, bool delivered) {
      if (const auto* commit = std::get_if<Commit>(&e.payload); commit && delivered)
        commits[e.from].emplace_back(commit->gradients, commit->update.read()[0].item<double>());
    });
    world.start();
    world.run();
    for (Rank rank = 0; rank < n; ++rank)
      EXPECT_EQ(commits[rank], (std::vector<std::pair<std::int64_t, double>>{
                                   {4, 1.5}, {4, 5.5}, {4, 9.5}, {4, 13.5}, {2, 16.5}}));
  }
}

// The clock is that of all clients' gradients over their number, at every moment and at the end.
TEST(Server, TheClockCountsAllClientsGradients) {
  for (const Keys& keys : std::vector<Keys>{{}, {{"local_steps", "4"}, {"servers", "2"}}})
    for (const std::int32_t n : {1, 3, 5}) {
      SCOPED_TRACE("n=" + std::to_string(n));
      const WorldConfig config = config_of("downpour", keys, n, 4);
      RoleWorld world(config, pull);
      std::map<Rank, std::int64_t> gradients;  // by server
      world.watch([&](const Envelope& e, bool delivered) {
        if (const auto* commit = std::get_if<Commit>(&e.payload); commit && delivered)
          gradients[e.to] += commit->gradients;
      });
      world.start();
      world.run([&] {
        for (Rank server = n; server < n + config.plan.servers; ++server)
          if (!world.finished(server)) {
            ASSERT_NEAR(world.model(server).epoch, static_cast<double>(gradients[server]) / 5.0 / n,
                        1e-9);
          }
      });
      for (Rank server = n; server < n + config.plan.servers; ++server)
        EXPECT_DOUBLE_EQ(world.model(server).epoch, 18.0 / 5);
    }
}

// The density of a warm-up is that of the client's clock, of every commit.
TEST(PackedCommits, FollowTheWarmUpOfTheDensity) {
  const WorldConfig config = config_of(
      "downpour", {{"compress", "top-k"}, {"density", "0.15"}, {"density_warmup", "1,0.6"}}, 2, 3);
  RoleWorld world(config, pull);
  std::map<Rank, std::vector<std::int64_t>> entries;
  world.watch([&](const Envelope& e, bool delivered) {
    if (const auto* chunk = std::get_if<PackedChunk>(&e.payload); chunk && delivered)
      entries[e.from].push_back(chunk->data.values.numel());
  });
  world.start();
  world.run();
  std::vector<std::int64_t> expected;
  for (Step step = 0; step < 18; ++step) expected.push_back(step < 5 ? 7 : step < 10 ? 4 : 1);
  for (Rank rank = 0; rank < 2; ++rank) EXPECT_EQ(entries[rank], expected) << "rank " << rank;
}

}  // namespace disagreeing_servers_test
}  // namespace grapevine
