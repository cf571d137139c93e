// Compressed commits to parameter servers: what clients came to is in theta, on its way, or in a
// residual, exactly, through refusals, checkpoints and deaths.
#include "algorithms/roles/server/packed_commits.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/compressors/sparse_compressor.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "messages/codec.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace packed_commits_test {

using sim::Keys;
using sim::plan_of;
using sim::RoleWorld;
using sim::WorldConfig;

constexpr std::int64_t kD = 41;
constexpr Step kSteps = 20;

WorldConfig config_of(const Keys& keys, std::int32_t n, std::uint64_t seed) {
  WorldConfig config;
  config.plan = plan_of(keys);
  config.ranks = n;
  config.seed = seed;
  config.dimension = kD;
  config.horizon = {kSteps, 5};
  config.lr = 0.125;
  return config;
}

// Whole numbers of many sizes: no sum of their eighths is rounded.
at::Tensor whole(Rank rank, Step step, const at::Tensor& z) {
  at::Tensor g = at::empty_like(z);
  for (std::int64_t i = 0; i < z.numel(); ++i) {
    const std::uint64_t key = static_cast<std::uint64_t>(rank) << 40 |
                              static_cast<std::uint64_t>(step) << 20 |
                              static_cast<std::uint64_t>(i);
    const std::uint64_t bits = mix_seed(5, key);
    const std::int64_t size = std::int64_t{1} << (bits % 12);
    g.data_ptr<float>()[i] = static_cast<float>(
        static_cast<std::int64_t>((bits >> 20) % static_cast<std::uint64_t>(2 * size + 1)) - size);
  }
  return g;
}

// The account of every server's slice, kept from outside by the messages.
class Account {
 public:
  // `scale`: of what a client commits for a gradient g: scale * -lr g.
  Account(RoleWorld& world, const WorldConfig& config, double scale)
      : world_(world),
        config_(config),
        scale_(scale),
        compressor_(make_compressor(config.plan.compression)),
        accepted_(at::zeros({kD}, at::kDouble)),
        lost_(accepted_.clone()),
        given_(accepted_.clone()) {
    world.watch([this](const Envelope& e, bool delivered) { see(e, delivered); });
  }

  // sum of accepted commits + on their way + residuals = all that was given to be committed.
  void check() {
    at::Tensor have = accepted_ + lost_;
    for (const auto& [key, update] : unanswered_) have += update;
    for (Rank client = 0; client < config_.ranks; ++client)
      if (dead_ != client) have += residual(client);
    ASSERT_TRUE(at::equal(have, given_)) << "after event " << world_.event_count();
  }
  void check_theta() const {
    std::vector<at::Tensor> slices;
    for (std::int32_t server = 0; server < config_.plan.servers; ++server)
      slices.push_back(world_.z(config_.ranks + server));
    EXPECT_TRUE(at::equal(at::cat(slices).to(at::kDouble), accepted_));
  }
  // What the client has not committed is lost with it; call this before it dies. Its commits that
  // wait or are on their way may still be accepted, before the news of its death.
  void kill(Rank client) {
    lost_ += residual(client);
    dead_ = client;
  }

  std::int64_t refused = 0;

 private:
  using Key = std::tuple<Rank, std::int32_t, std::int64_t>;  // client, server, exchange

  Slice slice(std::int32_t server) const { return slice_of(kD, config_.plan.servers, server); }

  // In its place in a vector of d.
  at::Tensor unpacked(const Packed& packed, std::int32_t server) const {
    const Slice part = slice(server);
    at::Tensor update = at::zeros({part.size}), all = at::zeros({kD}, at::kDouble);
    EXPECT_TRUE(compressor_->fold(update, packed, 1).ok());
    all.narrow(0, part.begin, part.size).copy_(update);
    return all;
  }

  at::Tensor residual(Rank client) const {
    at::Tensor all = at::zeros({kD}, at::kDouble);
    const StateDict saved = world_.saved(client);
    for (std::int32_t server = 0; server < config_.plan.servers; ++server) {
      const auto e = saved.tensor("packed." + std::to_string(server) + ".feedback.residual");
      const Slice part = slice(server);
      if (e.ok()) all.narrow(0, part.begin, part.size).copy_(*e);
    }
    return all;
  }

  // What goes into the next commit of a client to a server: of a window of steps, the last one of
  // what is left.
  void add_given(Rank client, std::int32_t server) {
    const Slice part = slice(server);
    const Step first = commits_[{client, server}]++ * config_.plan.local.steps.by_epoch.at(0);
    for (Step step = first;
         step < std::min(kSteps, first + config_.plan.local.steps.by_epoch.at(0)); ++step)
      given_.narrow(0, part.begin, part.size) +=
          scale_ * -config_.lr *
          whole(client, step, at::empty({kD})).narrow(0, part.begin, part.size).to(at::kDouble);
  }

  void see(const Envelope& e, bool delivered) {
    if (const auto* chunk = std::get_if<PackedChunk>(&e.payload); chunk && !delivered) {
      const std::int32_t server = e.to - config_.ranks;
      add_given(e.from, server);
      unanswered_[{e.from, server, chunk->operation}] = unpacked(chunk->data, server);
    }
    if (const auto* receipt = std::get_if<Receipt>(&e.payload)) {
      const Key key{e.to, e.from - config_.ranks, receipt->exchange};
      if (!delivered && receipt->accepted) accepted_ += unanswered_.at(key);
      if (delivered != receipt->accepted) unanswered_.erase(key);
      refused += !delivered && !receipt->accepted;
    }
  }

  RoleWorld& world_;
  const WorldConfig& config_;
  const double scale_;
  const std::unique_ptr<const Compressor> compressor_;
  std::map<std::pair<Rank, std::int32_t>, Step> commits_;
  std::map<Key, at::Tensor> unanswered_;
  at::Tensor accepted_, lost_, given_;
  Rank dead_ = -1;
};

struct Case {
  std::string name;
  Keys keys;
  double scale = 1;
};

// gem with a kappa so large that pi is at its bound of 5, for every element.
std::vector<Case> cases() {
  const Keys server = {{"exchange", "server"}};
  const Keys gem = sim::operator+(server, {{"rule", "gem"}, {"kappa", "1e9"}});
  const Keys downpour = sim::operator+(server, {{"rule", "downpour"}});
  return {{"gem", gem, 5},
          {"gem, relaxed, 3 servers",
           sim::operator+(gem, {{"servers", "3"}, {"section", "relaxed"}}), 5},
          {"downpour", downpour},
          {"downpour, window, 2 servers",
           sim::operator+(downpour, {{"servers", "2"}, {"local_steps", "3"}})},
          {"adaptive", sim::operator+(server, {{"rule", "adaptive"}, {"servers", "2"}})},
          {"agn", sim::operator+(server, {{"rule", "agn"}, {"local_steps", "4"}}), 0.25}};
}

std::vector<Keys> compressors() {
  return {{{"compress", "top-k"}, {"density", "0.1"}},
          {{"compress", "top-k"}, {"density", "0.2"}, {"value_type", "f16"}},
          {{"compress", "random-k"}, {"density", "0.1"}},
          {{"compress", "bf16"}}};
}

std::string describe(const Case& c, const Keys& compress, std::int32_t n, std::uint64_t seed) {
  std::string text = c.name;
  for (const auto& [key, value] : compress) text += ", " + key + "=" + value;
  return text + ", n=" + std::to_string(n) + ", seed=" + std::to_string(seed);
}

std::int64_t count(const RoleWorld& world, Rank rank, EventKind kind) {
  std::int64_t n = 0;
  for (const Event& event : world.events(rank)) n += event.kind == kind;
  return n;
}

void expect_ledger(const RoleWorld& world, Rank client) {
  const auto again = world.saved(client).list("resend");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(count(world, client, EventKind::committed) + static_cast<std::int64_t>(again->size()),
            kSteps)
      << "rank " << client;
  EXPECT_EQ(count(world, client, EventKind::dropped), 0) << "rank " << client;
}

// After every event; with grants that are taken back early, so that commits are refused.
TEST(PackedCommits, NothingIsLost) {
  std::int64_t refused = 0;
  for (const Case& c : cases())
    for (const Keys& compress : compressors())
      for (const std::int32_t n : {1, 4})
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
          SCOPED_TRACE(describe(c, compress, n, seed));
          WorldConfig config = config_of(sim::operator+(c.keys, compress), n, seed);
          sim::set_section_timeout(config.plan, 12e-9);  // events
          RoleWorld world(config, whole);
          Account account(world, config, c.scale);
          world.start();
          world.run([&] { account.check(); });
          if (HasFatalFailure()) return;
          if (c.name != "adaptive") account.check_theta();
          for (Rank r = 0; r < n; ++r) expect_ledger(world, r);
          refused += account.refused;
        }
  EXPECT_GT(refused, 50) << "hardly a commit was refused: little is tested";
}

TEST(PackedCommits, NothingIsLostByCheckpoints) {
  for (const Case& c : cases())
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const Keys compress = compressors()[seed - 1];
      SCOPED_TRACE(describe(c, compress, 3, seed));
      WorldConfig config = config_of(sim::operator+(c.keys, compress), 3, seed);
      sim::set_section_timeout(config.plan, 12e-9);
      RoleWorld world(config, whole);
      Account account(world, config, c.scale);
      world.start();
      for (std::int64_t next = 20; world.step();) {
        account.check();
        if (HasFatalFailure()) return;
        if (world.event_count() < next) continue;
        world.save_and_load();
        account.check();
        next += 25;
      }
      if (c.name != "adaptive") account.check_theta();
      for (Rank r = 0; r < 3; ++r) expect_ledger(world, r);
    }
}

// What a dead client had is lost with it, and no more than that.
TEST(PackedCommits, ADeathLosesWhatWasTheDeadOnes) {
  for (const Case& c : cases())
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(describe(c, {}, 4, seed));
      const WorldConfig config = config_of(sim::operator+(c.keys, compressors()[0]), 4, seed);
      RoleWorld world(config, whole);
      Account account(world, config, c.scale);
      world.start();
      const auto when = static_cast<std::int64_t>(10 + world.rng()() % 150);
      world.run_until(when);
      const Rank dead = static_cast<Rank>(seed) % 4;
      account.kill(dead);
      world.kill(dead);
      world.run([&] { account.check(); });
      if (HasFatalFailure()) return;
      if (c.name != "adaptive") account.check_theta();
      for (Rank r = 0; r < 4; ++r) {
        if (r == dead) continue;
        EXPECT_TRUE(world.finished(r)) << "rank " << r;
        expect_ledger(world, r);
      }
    }
}

// Without error feedback a refused commit is gone, and its gradients are dropped.
TEST(PackedCommits, WithoutErrorFeedbackRefusedGradientsAreDropped) {
  WorldConfig config = config_of({{"exchange", "server"},
                                  {"rule", "gem"},
                                  {"section", "relaxed"},
                                  {"compress", "top-k"},
                                  {"density", "0.1"},
                                  {"error_feedback", "false"}},
                                 4, 2);
  sim::set_section_timeout(config.plan, 8e-9);
  RoleWorld world(config, whole);
  world.start();
  world.run();
  const auto refused = *world.role(4).measures().integer("refused");
  EXPECT_GT(refused, 0);
  std::int64_t dropped = 0;
  for (Rank r = 0; r < 4; ++r) dropped += count(world, r, EventKind::dropped);
  EXPECT_EQ(dropped, refused);
}

// With everything selected the wiring ends with the bits of the one that does not compress.
TEST(PackedCommits, AllEntriesAreAWholeCommit) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    std::vector<at::Tensor> ends;
    for (const Keys& compress : {Keys{}, Keys{{"compress", "top-k"}, {"density", "1"}}}) {
      const WorldConfig config = config_of(sim::operator+(c.keys, compress), 3, 4);
      RoleWorld world(config, [](Rank rank, Step step, const at::Tensor& z) {
        return z * 0.3F + whole(rank, step, z);
      });
      world.start();
      world.run();
      ends.push_back(world.z(3));
    }
    EXPECT_TRUE(at::equal(ends[0], ends[1]));
  }
}

// A commit of k entries and a header of 132 bytes, for each slice.
TEST(PackedCommits, SendsTheBytesThatItSays) {
  for (const std::string servers : {"1", "3"})
    for (const auto& [type, of_entry] :
         std::map<std::string, std::uint64_t>{{"f32", 8}, {"f16", 6}}) {
      SCOPED_TRACE(servers + " servers, " + type);
      const WorldConfig config = config_of({{"exchange", "server"},
                                            {"rule", "downpour"},
                                            {"servers", servers},
                                            {"compress", "top-k"},
                                            {"density", "0.25"},
                                            {"value_type", type}},
                                           2, 1);
      RoleWorld world(config, whole);
      std::uint64_t bytes = 0;
      world.watch([&](const Envelope& e, bool delivered) {
        if (!delivered && std::holds_alternative<PackedChunk>(e.payload)) bytes += wire_size(e);
      });
      world.start();
      world.run();
      std::uint64_t expected = 0;
      for (std::int32_t s = 0; s < config.plan.servers; ++s) {
        const auto size = slice_of(kD, config.plan.servers, s).size;
        expected += 132 + of_entry * static_cast<std::uint64_t>(size / 4);
      }
      EXPECT_EQ(bytes, expected * kSteps * 2);
    }
}

FrozenTensor indices_beyond(const FrozenTensor& indices) {
  return FrozenTensor::freeze(indices.read() + static_cast<int>(kD));
}

// One commit in seven is none: the server refuses it, takes nothing of it, and everybody comes to
// the end with nothing lost.
TEST(PackedCommits, MalformedOnesAreRefused) {
  const std::map<std::string, void (*)(PackedChunk&)> damages = {
      {"an index beyond the slice",
       [](PackedChunk& c) { c.data.indices = indices_beyond(c.data.indices); }},
      {"indices without values", [](PackedChunk& c) { c.data.values = FrozenTensor(); }},
      {"whole numbers for values",
       [](PackedChunk& c) { c.data.values = FrozenTensor::copy_of(c.data.indices.read()); }},
      {"no gradient", [](PackedChunk& c) { c.round = 0; }},
      {"fewer than none", [](PackedChunk& c) { c.round = -3; }},
      {"more than a window", [](PackedChunk& c) { c.round = 1 << 30; }}};
  for (const Case& c : cases())
    for (const auto& [what, damage] : damages) {
      SCOPED_TRACE(c.name + ", " + what);
      const WorldConfig config = config_of(sim::operator+(c.keys, compressors()[0]), 3, 2);
      RoleWorld world(config, whole);
      Account account(world, config, c.scale);
      std::int64_t commits = 0, malformed = 0;
      world.tamper([&, harm = damage](Envelope& e) {
        auto* chunk = std::get_if<PackedChunk>(&e.payload);
        if (chunk == nullptr || ++commits % 7 != 0) return;
        ++malformed;
        harm(*chunk);
      });
      world.start();
      world.run([&] { account.check(); });
      if (HasFatalFailure()) return;
      if (c.name != "adaptive") account.check_theta();
      for (Rank r = 0; r < 3 + config.plan.servers; ++r)
        EXPECT_TRUE(world.finished(r)) << "rank " << r;
      for (Rank r = 0; r < 3; ++r) expect_ledger(world, r);
      std::int64_t refused = 0;
      for (Rank s = 3; s < 3 + config.plan.servers; ++s)
        refused += *world.role(s).measures().integer("refused");
      EXPECT_GT(malformed, 0);
      EXPECT_EQ(refused, malformed);
    }
}

// Commits of another wiring are no damage of the wire: the run ends.
TEST(PackedCommits, WhoCompressesIsTheWiringsChoice) {
  for (const bool compressed : {false, true}) {
    SCOPED_TRACE(compressed);
    const Keys downpour = {{"exchange", "server"}, {"rule", "downpour"}};
    const WorldConfig config =
        config_of(compressed ? sim::operator+(downpour, compressors()[0]) : downpour, 2, 1);
    RoleWorld world(config, whole);
    world.tamper([&](Envelope& e) {
      if (e.to < 2) return;
      if (compressed)
        e.payload = Commit{1, 1, FrozenTensor::copy_of(at::zeros({kD}))};
      else
        e.payload = PackedChunk{1, 1, e.from, to_packed({})};
    });
    world.start();
    EXPECT_THROW(world.run(), InvariantBroken);
  }
}

// Layers that cross the border of two servers' slices are cut there.
TEST(PackedCommits, LayersAreCutToTheSlice) {
  CompressionSettings settings;
  settings.per_layer = true;
  settings.layers = {10, 0, 5, 20};
  EXPECT_EQ(settings_of_slice(settings, 0, 35).layers, (std::vector<std::int64_t>{10, 5, 20}));
  EXPECT_EQ(settings_of_slice(settings, 0, 12).layers, (std::vector<std::int64_t>{10, 2}));
  EXPECT_EQ(settings_of_slice(settings, 12, 12).layers, (std::vector<std::int64_t>{3, 9}));
  EXPECT_EQ(settings_of_slice(settings, 30, 5).layers, (std::vector<std::int64_t>{5}));
  EXPECT_TRUE(settings_of_slice(settings, 35, 0).layers.empty());
}

TEST(PackedCommits, ModelsAreNotCommittedCompressed) {
  const std::string message =
      sim::refusal_of({{"exchange", "server"}, {"rule", "easgd"}, {"compress", "top-k"}});
  EXPECT_NE(message.find("wiring.compress = 'top-k' does not fit rule = 'easgd'"),
            std::string::npos)
      << message;
}

}  // namespace packed_commits_test
}  // namespace grapevine
