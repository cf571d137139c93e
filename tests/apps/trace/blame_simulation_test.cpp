// Blame names what has stalled in simulated runs, and nobody where nothing has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "apps/trace/blame.hpp"
#include "apps/trace/blame_report.hpp"
#include "tests/apps/trace/simulated_run.hpp"

namespace grapevine::blame_test {
namespace {

using Kinds = std::vector<CulpritKind>;

const std::vector<std::pair<Exchange, const char*>> kExchanges = {
    {Exchange::ring, "ring"},
    {Exchange::gossip, "gossip"},
    {Exchange::overlapped_gossip, "overlapped gossip"},
    {Exchange::partial, "partial"},
    {Exchange::server, "server"}};

BlameReport blame_of(const SimulatedRun& run, BlameQuestion question = {}) {
  Blame blame(run.layout(), question);
  for (const TraceRecord& record : run.records()) blame.learn(record);
  for (const TraceRecord& record : run.records()) blame.judge(record);
  return blame.report();
}

bool is_of(const Culprit& culprit, const KnownStall& stall) {
  return culprit.kind == stall.kind && culprit.rank == stall.rank && culprit.peer == stall.peer;
}

// A link over which the exchange sends in each step.
std::pair<Rank, Rank> random_link(Exchange exchange, std::int32_t workers, std::mt19937_64& rng) {
  const auto rank = static_cast<Rank>(rng() % static_cast<std::uint64_t>(workers));
  if (exchange == Exchange::server)
    return rng() % 2 == 0 ? std::pair(rank, workers) : std::pair(workers, rank);
  if (exchange == Exchange::ring || exchange == Exchange::partial)
    return {rank, (rank + 1) % workers};
  return {rank, (rank + (1 << rng() % 2)) % workers};
}

KnownStall random_stall(const SimulationSettings& settings, CulpritKind kind, Step step,
                        std::mt19937_64& rng) {
  KnownStall stall;
  stall.kind = kind;
  stall.step = step;
  stall.ns = static_cast<std::int64_t>(300'000'000 + rng() % 500'000'000);
  stall.rank = static_cast<Rank>(rng() % static_cast<std::uint64_t>(settings.workers));
  const bool pauses_server =
      kind == CulpritKind::pause && settings.exchange == Exchange::server && rng() % 2 == 0;
  if (kind == CulpritKind::server || pauses_server) {
    stall.rank = settings.workers;
    stall.step = step * settings.workers;
  }
  if (kind == CulpritKind::link) {
    std::tie(stall.rank, stall.peer) = random_link(settings.exchange, settings.workers, rng);
    if (stall.rank == settings.workers) stall.step = step * settings.workers;
  }
  return stall;
}

SimulationSettings random_settings(Exchange exchange, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  SimulationSettings settings;
  settings.exchange = exchange;
  settings.seed = seed;
  settings.workers = static_cast<std::int32_t>(4 + rng() % 3);
  settings.warms_up = rng() % 2 == 0;
  settings.server_blocks = rng() % 2 == 0;
  return settings;
}

std::int64_t waited_in(SimulationSettings settings) {
  SimulatedRun run(std::move(settings));
  run.run();
  return run.waited_ns();
}

struct Tally {
  int stalls = 0, named = 0, harmless = 0, wrong = 0;
  std::string misses;
};

// A stall that has made nobody wait is harmless, unless it was of a rank's own gradient.
bool has_harmed(const SimulationSettings& settings, const KnownStall& stall) {
  if (stall.kind == CulpritKind::compute || stall.kind == CulpritKind::data) return true;
  SimulationSettings without = settings;
  without.stalls.erase(
      std::find_if(without.stalls.begin(), without.stalls.end(),
                   [&stall](const KnownStall& s) { return s.step == stall.step; }));
  return waited_in(settings) - waited_in(without) > 100'000'000;
}

void tally_run(const SimulationSettings& settings, const std::string& name, Tally& tally) {
  SimulatedRun run(settings);
  run.run();
  const BlameReport report = blame_of(run);
  for (const KnownStall& stall : settings.stalls) {
    if (!has_harmed(settings, stall)) {
      ++tally.harmless;
      continue;
    }
    ++tally.stalls;
    const bool is_named =
        std::any_of(report.culprits.begin(), report.culprits.end(),
                    [&stall](const Culprit& culprit) { return is_of(culprit, stall); });
    tally.named += is_named ? 1 : 0;
    if (!is_named)
      tally.misses += fmt::format("{} seed {}: {} of rank {} to {} in step {}, {} ms\n{}", name,
                                  settings.seed, name_of(stall.kind), stall.rank, stall.peer,
                                  stall.step, stall.ns / 1'000'000, text_of(report));
  }
  for (const Culprit& culprit : report.culprits) {
    const bool is_known =
        std::any_of(settings.stalls.begin(), settings.stalls.end(),
                    [&culprit](const KnownStall& stall) { return is_of(culprit, stall); });
    if (is_known) continue;
    ++tally.wrong;
    tally.misses +=
        fmt::format("{} seed {}: wrongly named {} of rank {} to {}\n{}", name, settings.seed,
                    name_of(culprit.kind), culprit.rank, culprit.peer, text_of(report));
  }
}

// All kinds in one run, one after the other or at once.
TEST(BlameSimulation, NamesStallsOfSeveralKindsInOneRun) {
  for (const auto& [exchange, name] : kExchanges) {
    Tally all;
    for (std::uint64_t seed = 2001; seed <= 2020; ++seed) {
      SimulationSettings settings = random_settings(exchange, seed);
      std::mt19937_64 rng(seed);
      Step step = 8;
      for (const CulpritKind kind :
           {CulpritKind::compute, CulpritKind::link, CulpritKind::data, CulpritKind::pause}) {
        settings.stalls.push_back(random_stall(settings, kind, step, rng));
        step += 1 + static_cast<Step>(rng() % 12);
      }
      tally_run(settings, name, all);
    }
    fmt::print("{}: {}/{} ({} harmless, {} wrong)\n", name, all.named, all.stalls, all.harmless,
               all.wrong);
    EXPECT_GE(all.named, 0.95 * all.stalls) << all.misses.substr(0, 6000);
    EXPECT_LE(all.wrong, 0.05 * all.stalls) << all.misses.substr(0, 6000);
  }
}

TEST(BlameSimulation, NamesAtLeast95PercentOf200StallsInEachExchange) {
  for (const auto& [exchange, name] : kExchanges) {
    Kinds kinds = {CulpritKind::compute, CulpritKind::data, CulpritKind::link, CulpritKind::pause};
    if (exchange == Exchange::server) kinds.push_back(CulpritKind::server);
    Tally all;
    std::string by_kind;
    for (const CulpritKind kind : kinds) {
      Tally of_kind;
      for (std::uint64_t seed = 1; of_kind.stalls < 200 / static_cast<int>(kinds.size()); ++seed) {
        SimulationSettings settings = random_settings(exchange, seed);
        std::mt19937_64 rng(seed * 7919 + static_cast<std::uint64_t>(kind));
        for (const Step step : {12, 30, 48})
          settings.stalls.push_back(
              random_stall(settings, kind, step + static_cast<Step>(rng() % 8), rng));
        tally_run(settings, name, of_kind);
        ASSERT_LT(seed, 1000u) << "too few stalls do harm";
      }
      by_kind += fmt::format(" {} {}/{} ({} harmless, {} wrong)", name_of(kind), of_kind.named,
                             of_kind.stalls, of_kind.harmless, of_kind.wrong);
      all.stalls += of_kind.stalls;
      all.named += of_kind.named;
      all.wrong += of_kind.wrong;
      all.misses += of_kind.misses;
    }
    fmt::print("{}:{}\n", name, by_kind);
    EXPECT_GE(all.named, 0.95 * all.stalls) << all.misses.substr(0, 6000);
    EXPECT_LE(all.wrong, 0.05 * all.stalls) << all.misses.substr(0, 6000);
  }
}

TEST(BlameSimulation, NamesNobodyIn50RunsWithoutAStall) {
  for (const auto& [exchange, name] : kExchanges)
    for (std::uint64_t seed = 1001; seed <= 1050; ++seed) {
      SimulationSettings settings = random_settings(exchange, seed);
      settings.compute_ms = seed % 2 == 0 ? 10 : 150;
      settings.compute_jitter = 0.05 + 0.25 * static_cast<double>(seed % 5) / 4;
      SimulatedRun run(settings);
      run.run();
      const BlameReport report = blame_of(run);
      EXPECT_TRUE(report.culprits.empty()) << name << ", seed " << seed << "\n" << text_of(report);
    }
}

// A gradient that is late by t makes each other rank wait at most t longer, in all its waits.
TEST(BlameSimulation, AStallCostsEachRankItsLengthAtMost) {
  for (const auto& [exchange, name] : kExchanges)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SimulationSettings settings = random_settings(exchange, seed);
      settings.workers = 8;
      settings.compute_jitter = 0.8;
      settings.steps = 150;
      SimulatedRun run(settings);
      run.run();
      for (const Culprit& culprit : blame_of(run).culprits) {
        if (culprit.kind != CulpritKind::compute || culprit.always) continue;
        EXPECT_LE(culprit.waited_ns, culprit.own_ns * (settings.workers - 1))
            << name << ", seed " << seed << ", rank " << culprit.rank;
      }
    }
}

TEST(BlameSimulation, NamesARankThatIsAlwaysSlow) {
  for (const auto& [exchange, name] : kExchanges) {
    SimulationSettings settings = random_settings(exchange, 7);
    settings.slow_rank_factor = 2;  // rank 0: 20 ms instead of 10 ms, no step exceeds 50 ms
    SimulatedRun run(settings);
    run.run();
    const BlameReport report = blame_of(run);
    if (exchange == Exchange::server) {  // its clients do not wait for each other's gradients
      EXPECT_TRUE(report.culprits.empty()) << text_of(report);
      continue;
    }
    ASSERT_EQ(report.culprits.size(), 1u) << name << "\n" << text_of(report);
    const Culprit& slow = report.culprits.front();
    EXPECT_EQ(slow.kind, CulpritKind::compute) << name;
    EXPECT_EQ(slow.rank, 0) << name;
    EXPECT_TRUE(slow.always) << name;
    EXPECT_GT(slow.share, 0.5) << name << "\n" << text_of(report);
  }
}

}  // namespace
}  // namespace grapevine::blame_test
