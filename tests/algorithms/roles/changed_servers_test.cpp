// Clients of parameter servers are lost and join at any moment: what the servers have is what they
// accepted, also of lost ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/changing_wirings.hpp"
#include "tests/sim/outbox.hpp"
#include "tests/sim/pulled_ranks.hpp"

namespace grapevine {
namespace changed_servers_test {

using sim::changing_config;
using sim::Keys;
using sim::OnTheWire;
using sim::Outbox;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

constexpr std::int64_t kDimension = sim::kChangingDimension;

Rank any_member(RoleWorld& world) {
  const std::vector<Rank>& up = world.members();
  return up[world.rng()() % up.size()];
}

// The sum of the commits that each server has accepted, by its receipts, in double precision.
class AcceptedCommits {
 public:
  explicit AcceptedCommits(RoleWorld& world) : world_(world) {
    world.watch([this](const Envelope& envelope, bool delivered) { see(envelope, delivered); });
  }
  at::Tensor of(Rank server, std::int64_t size) const {
    const auto found = sums_.find(server);
    return found == sums_.end() ? at::zeros({size}, at::kDouble) : found->second;
  }
  std::int64_t count() const { return count_; }
  // By a client: its clock may be at the end then.
  bool is_left(Rank server) const { return left_.count(server) > 0; }
  // The gradients in them over the clients of their time.
  double epochs_of(Rank server) const {
    const auto found = epochs_.find(server);
    return found == epochs_.end() ? 0 : found->second;
  }

 private:
  void see(const Envelope& envelope, bool delivered) {
    if (const auto* commit = std::get_if<Commit>(&envelope.payload); commit && delivered) {
      open_[{envelope.from, envelope.to}] = commit->update.read().to(at::kDouble);
      gradients_[{envelope.from, envelope.to}] = commit->gradients;
    }
    if (std::holds_alternative<Leave>(envelope.payload) && delivered) left_.insert(envelope.to);
    const auto* receipt = std::get_if<Receipt>(&envelope.payload);
    if (!receipt || delivered) return;
    const auto commit = open_.extract({envelope.to, envelope.from});
    ASSERT_FALSE(commit.empty()) << "a receipt for nothing";
    if (!receipt->accepted) return;
    at::Tensor& sum = sums_[envelope.from];
    sum = sum.defined() ? sum + commit.mapped() : commit.mapped();
    ++count_;
    epochs_[envelope.from] += static_cast<double>(gradients_[{envelope.to, envelope.from}]) /
                              static_cast<double>(world_.members().size()) /
                              world_.parts()->horizon.steps_per_epoch;
  }

  std::map<std::pair<Rank, Rank>, at::Tensor> open_;  // by client and server
  RoleWorld& world_;
  std::map<std::pair<Rank, Rank>, std::int64_t> gradients_;  // likewise
  std::map<Rank, at::Tensor> sums_;
  std::map<Rank, double> epochs_;
  std::set<Rank> left_;
  std::int64_t count_ = 0;
};

// theta = theta_0 + the accepted commits, after each event; the clock counts their gradients; and
// no client is told of a negative staleness, also one that began with the copy of another.
TEST(ChangedServers, HaveWhatTheyAccepted) {
  std::int64_t commits = 0, joined = 0;
  for (const Keys& keys : std::vector<Keys>{{},
                                            {{"servers", "2"}},
                                            {{"section", "relaxed"}},
                                            {{"rule", "downpour"}},
                                            {{"rule", "downpour"}, {"servers", "3"}},
                                            {{"rule", "agn"}, {"local_steps", "3"}},
                                            {{"rule", "downpour"}, {"overlap", "true"}}})
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(sim::name_of(keys) + ", seed=" + std::to_string(seed));
      const std::int32_t n = 5;
      const WorldConfig config =
          changing_config(sim::operator+({{"exchange", "server"}}, keys), n, seed);
      RoleWorld world(config, pull);
      const AcceptedCommits accepted(world);
      std::vector<at::Tensor> start;
      const std::int32_t servers = config.plan.servers;
      for (Rank server = n; server < n + servers; ++server)
        start.push_back(world.model(server).x.read().to(at::kDouble));
      const auto check = [&] {
        for (Rank server = n; server < n + servers; ++server) {
          const at::Tensor theta = world.model(server).x.read().to(at::kDouble);
          const at::Tensor expected =
              start[static_cast<std::size_t>(server - n)] + accepted.of(server, theta.numel());
          ASSERT_LT((theta - expected).abs().max().item<double>(), 1e-4) << "server " << server;
          if (!accepted.is_left(server)) {
            ASSERT_NEAR(world.model(server).epoch, accepted.epochs_of(server), 1e-9);
          }
        }
      };
      world.start();
      std::int64_t events = 0;
      const auto run_until = [&](std::int64_t end) {
        while (world.event_count() < end && world.step()) check();
      };
      for (std::uint64_t lives = 0; lives < 1 + seed % 3; ++lives) {
        run_until(events += static_cast<std::int64_t>(20 + world.rng()() % 150));
        const Rank lost = any_member(world);
        world.kill(lost, seed % 2 == 0 ? OnTheWire::delivered : OnTheWire::lost);
        run_until(events += static_cast<std::int64_t>(world.rng()() % 20));
        world.change_members();
        check();
        run_until(events += static_cast<std::int64_t>(world.rng()() % 60));
        world.change_members({lost});
        check();
        ++joined;
      }
      world.run(check);
      commits += accepted.count();
      for (Rank rank = 0; rank < n + servers; ++rank) {
        ASSERT_TRUE(world.finished(rank)) << "rank " << rank;
        for (const Event& event : world.events(rank))
          if (event.kind == EventKind::applied) {
            ASSERT_GE(event.staleness, 0) << "rank " << rank;
          }
      }
    }
  EXPECT_GT(commits, 3000);
  EXPECT_GT(joined, 80);
}

// A rank that joins begins with the parameters of one that trains, and commits nothing of what that
// one has done since its last offer.
TEST(ChangedServers, AClientThatJoinsHoldsNothing) {
  for (const Keys& keys : std::vector<Keys>{
           {{"rule", "downpour"}, {"local_steps", "4"}},
           {{"rule", "delayed-nesterov"}, {"local_steps", "4"}, {"outer_momentum", "0"}}}) {
    SCOPED_TRACE(sim::name_of(keys));
    const std::int32_t n = 3;
    const WorldConfig config =
        changing_config(sim::operator+({{"exchange", "server"}}, keys), n, 1);
    // Only the donor, rank 0, moves: its gradients are 1, the others' 0.
    RoleWorld world(config, [](Rank rank, Step, const at::Tensor& z) {
      return rank == 0 ? at::ones_like(z) : at::zeros_like(z);
    });
    double offered = 0;
    Version pulled = 0, first = -1;  // by the donor; of the first offer of the rank that joined
    world.watch([&](const Envelope& envelope, bool delivered) {
      if (std::holds_alternative<Receipt>(envelope.payload) && delivered && envelope.to == 0)
        pulled = envelope.stamp.version;
      const auto* commit = std::get_if<Commit>(&envelope.payload);
      if (!commit || delivered || envelope.from != 2) return;
      offered = std::max(offered, commit->update.read().abs().max().item<double>());
      if (first < 0) first = envelope.stamp.version;
    });
    world.start();
    while (world.model(0).step < 6) ASSERT_TRUE(world.step());
    world.kill(2);
    world.change_members();
    while (world.model(0).step % 4 != 2) ASSERT_TRUE(world.step()) << "amid its local steps";
    first = -1;
    Version copied = 0;
    world.change_members({2}, [&] {
      copied = pulled;
      EXPECT_EQ(sim::distance(world.model(2).x.read(), world.model(0).x.read()), 0);
      EXPECT_EQ(world.model(2).step, world.model(0).step);
    });
    world.run();
    EXPECT_TRUE(world.finished(2));
    EXPECT_EQ(offered, 0) << "rank 2 offers the steps of rank 0";
    EXPECT_GT(copied, 0);
    EXPECT_EQ(first, copied) << "the version of the copy";
  }
}

// Rounds of synchronous clients: each is of all that are present, and those that waited for a lost
// one continue without it.
TEST(ChangedServers, ASynchronousRoundIsOfThePresentClients) {
  std::size_t seen_without = 0, seen_with = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const std::int32_t n = 4;
    WorldConfig config = changing_config(
        {{"exchange", "server"}, {"rule", "easgd"}, {"synchronous", "true"}}, n, seed);
    config.horizon.by_samples = false;
    RoleWorld world(config, pull);
    scatter(world, n, kDimension);
    std::vector<Rank> answered;
    std::vector<std::vector<Rank>> rounds;
    world.watch([&](const Envelope& envelope, bool delivered) {
      if (!std::holds_alternative<Receipt>(envelope.payload) || delivered) return;
      const bool again = std::find(answered.begin(), answered.end(), envelope.to) != answered.end();
      if (again) rounds.push_back(std::exchange(answered, {}));
      answered.push_back(envelope.to);
    });
    world.start();
    world.run_until(static_cast<std::int64_t>(world.rng()() % 150));
    const Rank lost = any_member(world);
    world.kill(lost);
    world.change_members();
    rounds.clear();
    answered.clear();
    world.run_until(world.event_count() + 60);
    const std::vector<Rank> without = world.members();
    for (const auto& round : rounds) EXPECT_EQ(round, without);
    seen_without += rounds.size();
    world.change_members({lost});
    answered.clear();
    rounds.clear();
    world.run_until(world.event_count() + 60);
    for (const auto& round : rounds) EXPECT_EQ(round, world.members());
    seen_with += rounds.size();
    world.run();
    for (Rank rank = 0; rank <= n; ++rank) EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
  }
  EXPECT_GT(seen_without, 20u);
  EXPECT_GT(seen_with, 20u);
}

// The role of a server that is closed already hears nothing of a loss: the next one does not wait
// for that client.
TEST(ChangedServers, ARoundThatWaitedForALostClientIsTaken) {
  const WorldConfig config =
      changing_config({{"exchange", "server"}, {"rule", "easgd"}, {"synchronous", "true"}}, 3, 1);
  const auto parts =
      make_parts(config.plan, config.horizon, *LrSchedule::make(LrConfig()), config.optimizer, 3);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  ModelState model;
  model.x = FrozenTensor::freeze(at::zeros({kDimension}));
  Outbox env(3, 4);
  const auto before = make_role(*parts, 3, 4, model);
  before->on_start(env);
  for (const Rank client : {0, 2}) {
    Envelope offer;
    offer.from = client;
    offer.to = 3;
    offer.payload = Commit{1, 1, FrozenTensor::freeze(at::ones({kDimension}))};
    before->on_message(env, std::move(offer));
  }
  before->close(env);
  EXPECT_TRUE(env.sent.empty()) << "the round waits for rank 1";
  MemberChange change;
  change.before = {0, 2};
  change.horizon = config.horizon;
  const auto among = parts_among(**parts, change);
  ASSERT_TRUE(among.ok()) << among.error().message;
  const auto after = make_member_role(*among, {{0, 2}, {}, {3}}, 3, model);
  const auto loaded = after->load_kept(before->save_shared(), before->save_own());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  after->on_start(env);
  ASSERT_EQ(env.sent.size(), 2u);
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_TRUE(std::holds_alternative<Receipt>(env.sent[i].payload));
    EXPECT_EQ(env.sent[i].to, i == 0 ? 0 : 2);
  }
}

// The section of each server whose clients take turns, by its messages.
class Sections {
 public:
  explicit Sections(RoleWorld& world) {
    world.watch([this](const Envelope& envelope, bool delivered) { see(envelope, delivered); });
  }
  // A client that holds a grant for which at least two others wait.
  std::optional<Rank> waited_for() const {
    for (const auto& [server, section] : sections_)
      if (section.waiting >= 2) return section.holder;
    return std::nullopt;
  }

 private:
  struct Section {
    std::optional<Rank> holder;
    std::int64_t waiting = 0;
  };

  void see(const Envelope& envelope, bool delivered) {
    const bool commits = std::holds_alternative<Commit>(envelope.payload) ||
                         std::holds_alternative<PackedChunk>(envelope.payload);
    if (commits && delivered) sections_[envelope.to].holder.reset();
    const bool asks = std::holds_alternative<Ask>(envelope.payload);
    if (asks && delivered) ++sections_[envelope.to].waiting;
    if (!std::holds_alternative<Grant>(envelope.payload) || delivered) return;
    sections_[envelope.from].holder = envelope.to;
    --sections_[envelope.from].waiting;
  }

  std::map<Rank, Section> sections_;
};

constexpr std::int32_t kClients = 5;
constexpr Step kMostSteps = 24;
constexpr std::int64_t kSliceSize = kClients * kMostSteps;

// Each gradient has an element of its own in the slice of each server.
at::Tensor own_elements(Rank rank, Step step, const at::Tensor& z) {
  at::Tensor g = at::zeros_like(z);
  for (std::int64_t begin = 0; begin < z.numel(); begin += kSliceSize)
    g[begin + rank * kMostSteps + step] = 1;
  return g;
}

std::set<Step> committed_steps(const RoleWorld& world, Rank rank) {
  std::set<Step> steps;
  for (const Event& event : world.events(rank))
    if (event.kind == EventKind::committed) steps.insert(event.stamp.step);
  return steps;
}

// A client is lost with its grant while the servers hold for another wiring: they grant no other
// turn. The steps of those that wait are in the common model, in the slices of all servers, once.
TEST(ChangedServers, AStepThatWaitsForItsTurnIsInTheCommonModel) {
  for (const Keys& keys :
       std::vector<Keys>{{},
                         {{"servers", "2"}},
                         {{"servers", "3"}},
                         {{"servers", "2"}, {"compress", "top-k"}, {"density", "0.3"}}})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(sim::name_of(keys) + ", seed=" + std::to_string(seed));
      WorldConfig config =
          changing_config(sim::operator+({{"exchange", "server"}}, keys), kClients, seed);
      config.horizon = {kMostSteps, 6};
      config.dimension = config.plan.servers * kSliceSize;
      RoleWorld world(config, own_elements);
      const Sections sections(world);
      world.start();
      world.run_until(static_cast<std::int64_t>(20 + world.rng()() % 200));
      while (!sections.waited_for()) ASSERT_TRUE(world.step()) << "no client waits";
      const Rank lost = *sections.waited_for();
      std::map<Rank, std::size_t> before;
      for (Rank rank = 0; rank < kClients; ++rank)
        before[rank] = committed_steps(world, rank).size();
      world.kill(lost, OnTheWire::lost);
      world.let_servers_hold_first();
      world.change_wiring(sim::plan_of({{"exchange", "aggregate"}}));

      const at::Tensor z = world.z(world.members().front());
      const at::Tensor counted = z.reshape({-1, kSliceSize}) / -sim::kChangingRate;
      std::size_t waited = 0;
      for (const Rank rank : world.members()) {
        EXPECT_LT(sim::distance(world.z(rank), z), 1e-6) << "rank " << rank;
        const std::set<Step> committed = committed_steps(world, rank);
        EXPECT_EQ(static_cast<std::int64_t>(committed.size()), world.given(rank))
            << "a gradient of rank " << rank << " has no account";
        if (committed.size() > before[rank]) ++waited;
        for (Step step = 0; step < kMostSteps; ++step) {
          const double expected = committed.count(step) > 0 ? 1 : 0;
          const at::Tensor shares = counted.select(1, rank * kMostSteps + step);
          EXPECT_LT((shares - expected).abs().max().item<double>(), 1e-4)
              << "step " << step << " of rank " << rank << ", by server: " << shares;
        }
      }
      EXPECT_GE(waited, 2u);
      if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace changed_servers_test
}  // namespace grapevine
