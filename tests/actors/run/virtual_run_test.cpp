// The shipped actors under CAF's testing scheduler: no clock and no chance may creep in.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include "messages/codec.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace virtual_run_test {

TEST(VirtualScenario, HasEveryPreset) {
  std::set<std::string> all, listed(kPresets.begin(), kPresets.end());
  for (const Preset& preset : presets())
    if (preset.name != "custom") all.insert(preset.name);
  EXPECT_EQ(listed, all);
}

TEST(VirtualRun, SameSeedSameTrace) {
  for (const std::string preset :
       {"sgp", "eager-solo", "eager-majority", "eager-quorum", "wagma"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.ranks = preset == "sgp" ? 64 : 16;
    scenario.noise = 0.1;
    const RunResult first = run(scenario), second = run(scenario);
    ASSERT_FALSE(first.error) << first.error->message;
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_EQ(first.trace_records, second.trace_records);
    EXPECT_GT(first.trace_records, static_cast<std::uint64_t>(scenario.ranks) * 20)
        << "a record for each step at least";
    EXPECT_TRUE(at::equal(first.z.read(), second.z.read()));
    scenario.seed = 2;
    EXPECT_NE(run(scenario).trace_hash, first.trace_hash) << "the hash does not see the trace";
  }
}

TEST(VirtualRun, LedgerBalancesAndMassIsConserved) {
  for (const std::string& preset : kPresets)
    for (const std::int32_t n : {1, 2, 3, 5, 8, 16}) {
      SCOPED_TRACE(preset + ", n=" + std::to_string(n));
      Scenario scenario;
      scenario.preset = preset;
      scenario.ranks = n;
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_well(scenario, observer);
      EXPECT_EQ(observer->ends, 1);
      if (preset == "ad-psgd") {
        EXPECT_GE(result.ledger.produced, n * scenario.steps);
      } else {
        EXPECT_EQ(result.ledger.produced, n * scenario.steps);
      }
      EXPECT_EQ(result.ledger.committed, result.ledger.produced);
      EXPECT_EQ(result.ledger.pending(), 0);
      EXPECT_EQ(result.ledger.sent, result.ledger.received);
      EXPECT_NEAR(result.weight_sum, n, 1e-9);
      EXPECT_EQ(observer->validations.size(), 2u);
      EXPECT_EQ(static_cast<std::int64_t>(observer->steps.size()), result.ledger.produced);
    }
}

// Nodes of several ranks, at unequal speeds: every epoch is validated once, whatever the clock of
// the role, and nothing is left over.
TEST(VirtualRun, NodesOfSeveralRanksEndAndAreValidated) {
  for (const std::string& preset : kPresets)
    for (const std::string delay : {"rotate=10ms..10ms", "rotate=10ms..10ms,rank=3:30ms"}) {
      SCOPED_TRACE(preset + ", " + delay);
      Scenario scenario;
      scenario.preset = preset;
      scenario.set = {{"hierarchy", "2"}};
      scenario.ranks = 8;
      scenario.delay = delay;
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_well(scenario, observer);
      EXPECT_EQ(observer->validations.size(), 2u);
      EXPECT_EQ(result.ledger.committed, result.ledger.produced);
      EXPECT_EQ(result.ledger.sent, result.ledger.received);
      EXPECT_NEAR(result.weight_sum, 8, 1e-9);
    }
}

// A straggler and skipped rounds: nothing may hang, and late shares count until the very end.
TEST(VirtualRun, OverlapWithABoundSurvivesAStraggler) {
  for (const int tau : {0, 1, 4}) {
    SCOPED_TRACE("tau=" + std::to_string(tau));
    Scenario scenario;
    scenario.preset = "osgp";
    scenario.set = {{"staleness", std::to_string(tau)}};
    scenario.ranks = 6;
    scenario.steps = 60;
    scenario.delay = "lognormal=-4:0.5,rank=2:200ms";
    const RunResult result = run_well(scenario);
    EXPECT_NEAR(result.weight_sum, 6, 1e-9);
    EXPECT_EQ(result.ledger.sent, result.ledger.received);
  }
}

// All ranks, not only their mean: a constant rate leaves each within reach of gamma. Of gamma times
// d/k where residuals are sent late: see compressed_run_test.cpp, where the rate goes down.
TEST(VirtualRun, ReachesTheOptimumOfHeterogeneousRanks) {
  for (const std::string& preset : kPresets) {
    if (std::count(kServers.begin(), kServers.end(), preset) > 0) continue;  // see below
    if (find_preset(preset)->wiring.keys().count("compress") > 0) continue;
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    if (preset == "diloco") scenario.set = {{"local_steps", "5"}};
    if (preset == "noloco") scenario.set = {{"local_steps", "1"}};  // pairs never average all
    scenario.ranks = 8;
    scenario.steps = 600;
    scenario.lr = 0.02;
    scenario.delay = "rotate=10ms..10ms";  // equal speeds: see the test of unequal ones
    const RunResult result = run_well(scenario);
    auto config = make_run(scenario);
    const auto& global = dynamic_cast<QuadraticCompute&>(*config.evaluator);
    // A round without some of the ranks pulls towards the optimum of the others; a late model
    // counts twice in wagma.
    const bool partial = preset.rfind("eager", 0) == 0;
    const double reach = preset == "wagma" ? 0.1 : partial ? 2e-2 : 5e-3;
    EXPECT_LT((result.z.read() - global.optimum()).abs().max().item<double>(), reach);
    EXPECT_LT(result.consensus_distance, 0.1);
  }
}

// Servers move by one gradient at a time: where ranks differ, theta circles around the optimum.
// Here they do not differ, and speeds do.
TEST(VirtualRun, ServersReachTheOptimumOfAllTheirClients) {
  for (const std::string& preset : kServers)
    for (const std::string servers : {"1", "3"}) {
      SCOPED_TRACE(preset + " on " + servers);
      Scenario scenario;
      scenario.preset = preset;
      scenario.set = {{"servers", servers}};
      scenario.ranks = 8;
      scenario.steps = 600;
      scenario.lr = 0.02;
      scenario.momentum = preset == "gem" ? 0.9 : 0;
      scenario.heterogeneity = 0;
      const RunResult result = run_well(scenario);
      auto config = make_run(scenario);
      const auto& global = dynamic_cast<QuadraticCompute&>(*config.evaluator);
      EXPECT_LT((result.z.read() - global.optimum()).abs().max().item<double>(), 1e-3);
      EXPECT_EQ(result.z.numel(), 16);
      EXPECT_EQ(result.steps, std::vector<Step>(8, 600));
      EXPECT_LT(result.consensus_distance, 0.02);
    }
}

// A hundred and more clients of equal speed: each waits for all others, none is passed over, and
// every commit is as old as the queue is long.
TEST(VirtualRun, ServesAHundredAndTwentyEightClientsFairly) {
  for (const std::string preset : {"gem", "downpour"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.ranks = 128;
    scenario.lr = 1e-3;
    scenario.noise = 0.1;
    scenario.delay = "rotate=10ms..10ms";
    const RunResult result = run_well(scenario);
    EXPECT_EQ(result.trace_hash, run_well(scenario).trace_hash);
    EXPECT_EQ(result.ledger.committed, 128 * 20);
    const HistogramSummary staleness = summarize(result.ledger.staleness);
    EXPECT_EQ(staleness.p50, 127);
    EXPECT_EQ(staleness.max, 127);
    const StateDict& measures = result.measures.at(128);
    EXPECT_EQ(*measures.integer("inversions"), 0);
    EXPECT_EQ(*measures.integer("commits"), 128 * 20);
    EXPECT_GT(*measures.number("jain_min"), 0.999);
    EXPECT_GT(*measures.integer("windows"), 1000);
  }
}

double mean_step_seconds(const Quiet& observer, Rank but_not) {
  double sum = 0;
  int count = 0;
  for (const StepReport& report : observer.steps)
    if (report.rank != but_not) {
      sum += report.batch_time_s;
      ++count;
    }
  return sum / count;
}

// Lian et al. 2018, section 6: one rank ten times slower than the others. They lose no time, and
// the mean model comes to the optimum of the ranks' objectives weighted by their speeds: this is
// the bias, as a slow rank's data is seen less often in the same number of gradients.
TEST(VirtualRun, AdPsgdDoesNotWaitForASlowRank) {
  constexpr Rank kSlow = 3;
  Scenario scenario;
  scenario.preset = "ad-psgd";
  scenario.ranks = 8;
  scenario.steps = 600;
  scenario.lr = 0.02;
  scenario.delay = "rotate=10ms..10ms";
  const auto even = std::make_shared<Quiet>(), uneven = std::make_shared<Quiet>();
  run_well(scenario, even);
  scenario.delay += ",rank=" + std::to_string(kSlow) + ":90ms";
  const RunResult result = run_well(scenario, uneven);

  EXPECT_LT(mean_step_seconds(*uneven, kSlow), 1.05 * mean_step_seconds(*even, kSlow));
  EXPECT_LT(result.steps[kSlow] * 8, result.steps[0]);

  RunConfig config = make_run(scenario);
  const auto optimum = dynamic_cast<QuadraticCompute&>(*config.evaluator).optimum();
  at::Tensor weighted = at::zeros_like(optimum);
  double steps = 0;
  for (Rank r = 0; r < scenario.ranks; ++r) {
    const auto speed = static_cast<double>(result.steps[static_cast<std::size_t>(r)]);
    const auto& own =
        dynamic_cast<QuadraticCompute&>(*config.computes[static_cast<std::size_t>(r)]);
    weighted += own.own_optimum() * speed;
    steps += speed;
  }
  weighted /= steps;
  const double bias = (weighted - optimum).norm().item<double>();
  EXPECT_GT(bias, 0.05) << "the slow rank's optimum is the mean: nothing is tested";
  EXPECT_LT((result.z.read() - weighted).norm().item<double>(), 0.25 * bias);
  EXPECT_LT((result.z.read() - optimum).norm().item<double>(), 1.25 * bias);
}

// Pushes every coordinate by a whole number, so that no sum is rounded.
class Whole : public Compute {
 public:
  explicit Whole(Rank rank) : rank_(rank) {}
  std::int64_t dimension() const override { return 4; }
  FrozenTensor initial_parameters() const override { return FrozenTensor::freeze(at::zeros({4})); }
  FrozenTensor initial_buffers() const override { return {}; }
  Gradient gradient(GradientRequest request) override {
    Gradient gradient;
    gradient.step = request.step;
    gradient.samples = 1;
    gradient.value = FrozenTensor::freeze(at::full({4}, -64.0 * rank_));
    return gradient;
  }
  Expected<Evaluation> evaluate(const FrozenTensor&, const FrozenTensor&) override {
    return Evaluation{};
  }

 private:
  Rank rank_;
};

double last_time(const Quiet& observer) {
  double last = 0;
  for (const StepReport& report : observer.steps) last = std::max(last, report.time_s);
  return last;
}

// Li et al. 2020, section 6: another rank is slow at each step, and nobody waits for it. A rank
// that is always slow sets the pace in the long run: all take the same number of steps.
TEST(VirtualRun, PartialSumsGainFromRandomDelaysAndNotFromAPersistentStraggler) {
  const auto seconds = [](const std::string& preset, const std::string& slow) {
    Scenario scenario;
    scenario.preset = preset;
    scenario.ranks = 8;
    scenario.steps = 200;
    scenario.delay = "rotate=10ms..10ms," + slow;
    const auto observer = std::make_shared<Quiet>();
    run_well(scenario, observer);
    return last_time(*observer);
  };
  for (const std::string preset : {"eager-solo", "eager-majority", "eager-quorum"}) {
    SCOPED_TRACE(preset);
    EXPECT_LT(seconds(preset, "random=1:30ms"), 0.8 * seconds("ar", "random=1:30ms"));
    EXPECT_GT(seconds(preset, "rank=2:30ms"), 0.99 * seconds("ar", "rank=2:30ms"));
  }
  EXPECT_LT(seconds("wagma", "random=1:30ms"), 0.8 * seconds("ar", "random=1:30ms"));
}

// Where ranks' clocks differ, an epoch may pass between two looks at them.
std::vector<std::string> epoch_checkpoints(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (const std::string name = entry.path().filename().string(); name.rfind("epoch-", 0) == 0)
      names.push_back(name);
  return names;
}

// A run that goes on from a checkpoint with gradients pending, held or on their way consumes each
// once: replicas agree, and x is what all of them say.
TEST(VirtualRun, EagerCheckpointsLoseNoGradient) {
  std::int64_t caught = 0;
  Step reported_ahead = 0;
  for (const std::string preset : {"eager-solo", "eager-majority", "eager-quorum"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.steps = 24;
    scenario.steps_per_epoch = 4;
    scenario.lr = 1;
    scenario.delay = "lognormal=-4:1";
    scenario.folder = fresh_folder("exact-" + preset);
    const auto make = [&] {
      RunConfig config = make_run(scenario);
      for (Rank r = 0; r < 4; ++r) config.computes[static_cast<std::size_t>(r)].reset(new Whole(r));
      config.evaluator.reset();
      return config;
    };
    // -64 r a step, over 4 ranks, with a rate of 1.
    const at::Tensor expected = at::full({4}, 24 * 64 * (1 + 2 + 3) / 4.0F);
    const RunResult straight = run_virtual(make(), std::make_shared<Quiet>());
    ASSERT_FALSE(straight.error) << straight.error->message;
    EXPECT_TRUE(at::equal(straight.z.read(), expected)) << straight.z.read();
    const std::vector<std::string> names = epoch_checkpoints(scenario.folder);
    EXPECT_FALSE(names.empty());
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      auto checkpoint = read_checkpoint(scenario.folder + "/" + name);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      for (const StateDict& rank : checkpoint->ranks)
        for (const char* list : {"role.pending.count", "role.contributed.count"})
          caught += *rank.integer(list);
      std::vector<Step> next = checkpoint->reported();
      for (std::size_t r = 0; r < next.size(); ++r)
        reported_ahead += next[r] - checkpoint->steps()[r];
      RunConfig again = make();
      again.resume = std::move(*checkpoint);
      again.checkpoint_folder.clear();
      const auto observer = std::make_shared<Quiet>();
      const RunResult resumed = run_virtual(std::move(again), observer);
      ASSERT_FALSE(resumed.error) << resumed.error->message;
      // What was reported before is not reported again, and all else is.
      for (const StepReport& report : observer->steps)
        EXPECT_EQ(report.step, next[static_cast<std::size_t>(report.rank)]++);
      EXPECT_EQ(next, std::vector<Step>(4, 24));
      EXPECT_TRUE(at::equal(resumed.z.read(), expected)) << resumed.z.read();
      EXPECT_EQ(resumed.consensus_distance, 0);
      EXPECT_EQ(resumed.ledger.committed, 4 * 24);
      EXPECT_EQ(resumed.ledger.pending(), 0);
    }
  }
  EXPECT_GT(caught, 0) << "no checkpoint caught a gradient that was not in the model yet";
  EXPECT_GT(reported_ahead, 0) << "no checkpoint caught a step that was reported before its end";
}

// A checkpoint of a moment with messages in flight: going on from it gives the same bits.
TEST(VirtualRun, ResumeGivesTheSameBits) {
  for (const std::string& preset : kSynchronous) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.ranks = 5;
    scenario.steps = 40;
    scenario.momentum = 0.9;
    scenario.lr = 0.02;
    if (preset == "diloco") scenario.set = {{"local_steps", "7"}};
    scenario.folder = fresh_folder("resume-" + preset);
    const RunResult straight = run_well(scenario);

    auto checkpoint = read_checkpoint(scenario.folder + "/epoch-0002");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const std::vector<Step> behind = checkpoint->steps();
    RunConfig again = make_run(scenario);
    again.resume = std::move(*checkpoint);
    const auto observer = std::make_shared<Quiet>();
    const RunResult resumed = run_virtual(std::move(again), observer);
    ASSERT_FALSE(resumed.error) << resumed.error->message;
    // Every step is reported once, with figures of its own.
    std::map<Rank, Step> next;
    for (Rank r = 0; r < 5; ++r) next[r] = behind[static_cast<std::size_t>(r)];
    for (const StepReport& report : observer->steps) {
      EXPECT_EQ(report.step, next[report.rank]++) << "rank " << report.rank;
      EXPECT_GT(report.loss, 0);
    }
    EXPECT_EQ(resumed.ledger.samples, straight.ledger.samples);
    EXPECT_TRUE(at::equal(straight.z.read(), resumed.z.read()));
    EXPECT_EQ(resumed.ledger.produced, straight.ledger.produced);
    EXPECT_EQ(resumed.ledger.committed, straight.ledger.committed);
    EXPECT_NEAR(resumed.weight_sum, 5, 1e-12);
  }
}

struct Total {
  at::Tensor x = at::zeros({4}, at::kDouble);
  double w = 0;
  std::int64_t in_flight = 0;
};

void add_share(Total& total, const Share& share) {
  total.x += share.x.read().to(at::kDouble);
  total.w += share.w;
}

// What a checkpoint holds of the mass: models, shares that wait to be folded, messages in flight.
Total total_of(const Checkpoint& checkpoint) {
  Total total;
  const auto ranks = static_cast<std::int32_t>(checkpoint.ranks.size());
  for (const StateDict& rank : checkpoint.ranks) {
    total.x += rank.tensor("model.x")->to(at::kDouble);
    total.w += *rank.number("model.w");
    const StateDict arrived = rank.under("role").under("arrived");
    for (std::int64_t i = 0; arrived.tensor(std::to_string(i) + ".x").ok(); ++i) {
      total.x += arrived.tensor(std::to_string(i) + ".x")->to(at::kDouble);
      total.w += *arrived.number(std::to_string(i) + ".w");
    }
    const StateDict in_flight = rank.under("in_flight");
    for (const auto& [name, text] : in_flight.entries()) {
      const auto& bytes = std::get<std::string>(text);
      CodecLimits limits;
      limits.world_size = ranks;
      const auto envelope =
          decode(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size(), limits);
      EXPECT_TRUE(envelope.ok());
      ++total.in_flight;
      if (const auto* share = std::get_if<Share>(&envelope->payload)) add_share(total, *share);
      if (const auto* swap = std::get_if<Swap>(&envelope->payload); swap && swap->reply)
        total.x -= swap->x.read().to(at::kDouble);
    }
  }
  return total;
}

std::int64_t committed_pushes(const Checkpoint& checkpoint) {
  std::int64_t sum = 0;
  for (std::size_t r = 0; r < checkpoint.ranks.size(); ++r)
    sum += *checkpoint.ranks[r].integer("ledger.committed") * static_cast<std::int64_t>(r);
  return sum;
}

// Halves of whole numbers, a few rounds long: the sums hold to the last bit, at the checkpoint and
// at the end of the run that goes on from it.
TEST(VirtualRun, ACheckpointWithMessagesInFlightConservesMassExactly) {
  std::int64_t caught_in_flight = 0;
  for (const auto& [preset, set] :
       std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>>{
           {"sgp", {}},
           {"osgp", {}},
           {"osgp", {{"staleness", "2"}}},
           {"d-psgd", {{"topology", "bipartite-exponential"}}},
           {"ad-psgd", {}}}) {
    SCOPED_TRACE(preset + (set.empty() ? "" : " " + set.front().second));
    Scenario scenario;
    scenario.preset = preset;
    scenario.set = set;
    scenario.steps = 6;
    scenario.steps_per_epoch = 2;
    // Nobody so slow that an epoch begins and ends between two of its steps.
    if (preset == "ad-psgd") scenario.delay = "rotate=10ms..15ms";
    scenario.lr = 1;
    scenario.folder = fresh_folder("exact-" + preset + std::to_string(set.size()));
    const auto make = [&] {
      RunConfig config = make_run(scenario);
      for (Rank r = 0; r < 4; ++r) config.computes[static_cast<std::size_t>(r)].reset(new Whole(r));
      config.evaluator.reset();
      return config;
    };
    const RunResult straight = run_virtual(make(), std::make_shared<Quiet>());
    ASSERT_FALSE(straight.error) << straight.error->message;
    const std::vector<std::string> names = epoch_checkpoints(scenario.folder);
    EXPECT_FALSE(names.empty());
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      auto checkpoint = read_checkpoint(scenario.folder + "/" + name);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      const Total total = total_of(*checkpoint);
      caught_in_flight += total.in_flight;
      EXPECT_EQ(total.w, 4);
      EXPECT_TRUE(
          at::equal(total.x, at::full({4}, 64.0 * committed_pushes(*checkpoint), at::kDouble)))
          << total.x << " after " << committed_pushes(*checkpoint);
      RunConfig again = make();
      again.resume = std::move(*checkpoint);
      const RunResult resumed = run_virtual(std::move(again), std::make_shared<Quiet>());
      ASSERT_FALSE(resumed.error) << resumed.error->message;
      EXPECT_EQ(resumed.weight_sum, 4);
      const auto end = read_checkpoint(scenario.folder + "/final");
      ASSERT_TRUE(end.ok());
      EXPECT_TRUE(
          at::equal(total_of(*end).x, at::full({4}, 64.0 * committed_pushes(*end), at::kDouble)));
    }
  }
  EXPECT_GT(caught_in_flight, 0) << "no checkpoint caught a message: nothing was tested";
}

// The same for servers: at the end theta holds every gradient, to the last bit.
TEST(VirtualRun, AServersCheckpointLosesNoCommit) {
  int resumed_runs = 0;
  for (const auto& set : std::vector<std::vector<std::pair<std::string, std::string>>>{
           {}, {{"servers", "3"}}, {{"local_steps", "2"}}}) {
    SCOPED_TRACE(set.empty() ? "" : set.front().first);
    Scenario scenario;
    scenario.preset = "downpour";
    scenario.set = set;
    scenario.steps = 12;
    scenario.steps_per_epoch = 3;
    scenario.lr = 1;
    scenario.folder = fresh_folder("exact-downpour" + (set.empty() ? "" : set.front().first));
    const auto make = [&] {
      RunConfig config = make_run(scenario);
      for (Rank r = 0; r < 4; ++r) config.computes[static_cast<std::size_t>(r)].reset(new Whole(r));
      config.evaluator.reset();
      return config;
    };
    const at::Tensor expected = at::full({4}, 12 * 64.0 * (0 + 1 + 2 + 3));
    const RunResult straight = run_virtual(make(), std::make_shared<Quiet>());
    ASSERT_FALSE(straight.error) << straight.error->message;
    EXPECT_TRUE(at::equal(straight.z.read(), expected)) << straight.z.read();
    for (const std::string& name : epoch_checkpoints(scenario.folder)) {
      SCOPED_TRACE(name);
      RunConfig again = make();
      again.resume = *read_checkpoint(scenario.folder + "/" + name);
      const RunResult resumed = run_virtual(std::move(again), std::make_shared<Quiet>());
      ASSERT_FALSE(resumed.error) << resumed.error->message;
      EXPECT_TRUE(at::equal(resumed.z.read(), expected)) << resumed.z.read();
      EXPECT_EQ(resumed.ledger.committed, 48);
      EXPECT_EQ(resumed.ledger.produced, 48);
      ++resumed_runs;
    }
  }
  EXPECT_GT(resumed_runs, 3) << "no checkpoint was taken: nothing was tested";
}

TEST(VirtualRun, OnlyTheNewestCheckpointIsKeptWhereAskedFor) {
  Scenario scenario;
  scenario.folder = fresh_folder("keep-latest");
  const auto run_and_list = [&](RunConfig config) {
    config.kept_checkpoints = *parse_kept_checkpoints("latest");
    EXPECT_FALSE(run_virtual(std::move(config), std::make_shared<Quiet>()).error);
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(scenario.folder))
      names.insert(entry.path().filename().string());
    EXPECT_TRUE(read_checkpoint(scenario.folder).ok());
    return names;
  };
  const std::set<std::string> one = {"final", "latest"};
  EXPECT_EQ(run_and_list(make_run(scenario)), one);
  // A run that goes on from the newest one makes it an older one.
  const std::filesystem::path folder = scenario.folder;
  std::filesystem::rename(folder / "final", folder / "step-00000020");
  std::filesystem::remove(folder / "latest");
  std::filesystem::create_symlink("step-00000020", folder / "latest");
  scenario.steps = 30;
  RunConfig longer = make_run(scenario);
  longer.resume = std::move(*read_checkpoint(scenario.folder));
  EXPECT_EQ(run_and_list(std::move(longer)), one);
}

// One that takes the place of the one that the run went on from, however its folder is named.
TEST(VirtualRun, ACheckpointInThePlaceOfTheLastOneIsKept) {
  const std::filesystem::path folder = fresh_folder("keep-in-place");
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_symlink("real", folder / "link");
  for (const std::string name : {"real", "real/", "link", "real/../link/."}) {
    SCOPED_TRACE(name);
    Scenario scenario;
    scenario.folder = (folder / name).string();
    for (const Step steps : {20, 24, 24}) {  // less than an epoch more: "final" again
      scenario.steps = steps;
      RunConfig config = make_run(scenario);
      config.kept_checkpoints = *parse_kept_checkpoints("latest");
      if (auto before = read_checkpoint(scenario.folder)) config.resume = std::move(*before);
      ASSERT_FALSE(run_virtual(std::move(config), std::make_shared<Quiet>()).error);
      const auto kept = read_checkpoint(scenario.folder);
      ASSERT_TRUE(kept.ok()) << kept.error().message;
      EXPECT_EQ(kept->steps(), std::vector<Step>(4, steps));
    }
    std::filesystem::remove_all(folder / "real");
    std::filesystem::create_directory(folder / "real");
  }
}

// Longer than planned: what was finished goes on.
TEST(VirtualRun, AFinishedRunCanBeExtended) {
  for (const auto& [preset, tau] :
       std::vector<std::pair<std::string, std::string>>{{"ar", ""},
                                                        {"sgp", ""},
                                                        {"osgp", "0"},
                                                        {"osgp", "2"},
                                                        {"d-psgd", ""},
                                                        {"gtopk", ""},
                                                        {"choco-sgd", ""},
                                                        {"ad-psgd", ""},
                                                        {"gem", ""},
                                                        {"downpour", ""},
                                                        {"easgd", ""},
                                                        {"local-sgd", ""},
                                                        {"eager-solo", ""},
                                                        {"eager-majority", ""},
                                                        {"eager-quorum", ""},
                                                        {"wagma", ""},
                                                        {"diloco", ""}}) {
    SCOPED_TRACE(preset + tau);
    Scenario scenario;
    scenario.preset = preset;
    if (!tau.empty()) scenario.set = {{"staleness", tau}};
    scenario.steps = 20;
    scenario.folder = fresh_folder("extend-" + preset + tau);
    ASSERT_FALSE(run(scenario).error);
    auto checkpoint = read_checkpoint(scenario.folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    scenario.steps = 30;
    RunConfig longer = make_run(scenario);
    longer.resume = std::move(*checkpoint);
    const RunResult result = run_virtual(std::move(longer), std::make_shared<Quiet>());
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_GE(result.ledger.produced, 4 * 30);
    if (preset != "ad-psgd") {
      EXPECT_EQ(result.steps, std::vector<Step>(4, 30));
    }
    EXPECT_NEAR(result.weight_sum, 4, 1e-9);
    EXPECT_GE(result.ledger.sent, 4 * 2) << "the ranks stopped talking to each other";
  }
}

// A compute that fails at one step.
class Failing : public Compute {
 public:
  std::int64_t dimension() const override { return 4; }
  FrozenTensor initial_parameters() const override { return FrozenTensor::freeze(at::zeros({4})); }
  FrozenTensor initial_buffers() const override { return {}; }
  Gradient gradient(GradientRequest request) override {
    Gradient gradient;
    gradient.step = request.step;
    gradient.error = "rank 2: the disk is on fire";
    return gradient;
  }
  Expected<Evaluation> evaluate(const FrozenTensor&, const FrozenTensor&) override {
    return Evaluation{};
  }
};

TEST(VirtualRun, AFailingWorkerEndsTheRunWithItsReason) {
  Scenario scenario;
  RunConfig config = make_run(scenario);
  scenario.dimension = 4;
  config = make_run(scenario);
  config.computes[2] = std::make_shared<Failing>();
  const auto observer = std::make_shared<Quiet>();
  const RunResult result = run_virtual(std::move(config), observer);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "rank 2: the disk is on fire");
  EXPECT_EQ(observer->ends, 1);
}

// Fails once its first epoch is over, which is when a checkpoint is taken.
class FailingLater : public Failing {
 public:
  FailingLater(std::shared_ptr<Compute> inner, Step last) : inner_(std::move(inner)), last_(last) {}
  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  Gradient gradient(GradientRequest request) override {
    return request.step <= last_ ? inner_->gradient(std::move(request))
                                 : Failing::gradient(std::move(request));
  }

 private:
  std::shared_ptr<Compute> inner_;
  Step last_;
};

// The next run would go on from it, and fail there again.
TEST(VirtualRun, ACheckpointIsNotFinishedOnceTheRunHasFailed) {
  for (const bool fails : {false, true}) {
    Scenario scenario;
    scenario.delay = "";
    scenario.folder = fresh_folder("fails-in-a-cut");
    RunConfig config = make_run(scenario);
    if (fails) config.computes[2] = std::make_shared<FailingLater>(config.computes[2], 9);
    const auto observer = std::make_shared<Quiet>();
    const RunResult result = run_virtual(std::move(config), observer);
    EXPECT_EQ(result.error.has_value(), fails);
    EXPECT_EQ(observer->checkpoints.empty(), fails);
    EXPECT_EQ(read_checkpoint(scenario.folder).ok(), !fails);
  }
}

// A worker that never answers: the run ends by its timeout, not never.
TEST(VirtualRun, ARankThatHangsEndsTheRunInBoundedTime) {
  Scenario scenario;
  scenario.delay = "rank=1:900000s";
  RunConfig config = make_run(scenario);
  config.timeout = std::chrono::seconds(60);
  const RunResult result = run_virtual(std::move(config), std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::timeout);
  EXPECT_NE(result.error->message.find("no rank made progress for 60 s"), std::string::npos)
      << result.error->message;
}

// A rank that cannot be attached ends the run before it begins; nothing waits for it.
TEST(RealRun, ATransportThatTakesNoRankEndsTheRun) {
  class Taken : public Transport {
   public:
    Expected<void> attach(Rank rank, std::shared_ptr<Inbox>) override {
      return Error{Errc::failed, "rank " + std::to_string(rank) + " is attached already"};
    }
    void detach(Rank) override {}
    void send(Envelope) override {}
    TransportCounters counters(Rank) const override { return {}; }
    std::int32_t world_size() const override { return 4; }
  };
  Scenario scenario;
  scenario.delay = "";
  RunConfig config = make_run(scenario);
  config.transport = std::make_shared<Taken>();
  const auto observer = std::make_shared<Waiting>();
  Runtime runtime(std::move(config), observer);
  const RunResult result = observer->wait();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message.rfind("the run cannot be started: ", 0), 0U)
      << result.error->message;
  EXPECT_NE(result.error->message.find("is attached already"), std::string::npos)
      << result.error->message;
}

// An evaluation far longer than the run's timeout, which gets on all the time.
class LongEvaluation : public Compute {
 public:
  explicit LongEvaluation(std::shared_ptr<Compute> inner) : inner_(std::move(inner)) {}
  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }
  Gradient gradient(GradientRequest request) override {
    return inner_->gradient(std::move(request));
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    for (int batch = 0; batch < batches; ++batch) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      evaluation_goes_on();
    }
    return inner_->evaluate(z, buffers);
  }

  int batches = 130;  // 0.1 s each

 private:
  std::shared_ptr<Compute> inner_;
};

TEST(RealRun, AValidationThatGetsOnIsNotStuck) {
  Scenario scenario;
  scenario.steps = 4;
  scenario.steps_per_epoch = 4;
  scenario.delay = "";
  RunConfig config = make_run(scenario);
  const auto evaluator = std::make_shared<LongEvaluation>(config.evaluator);
  config.evaluator = evaluator;
  config.timeout = std::chrono::seconds(4);
  const auto observer = std::make_shared<Waiting>();
  auto runtime = std::make_unique<Runtime>(std::move(config), observer);
  const RunResult result = observer->wait(std::chrono::seconds(300));
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(observer->validations.size(), 1U);
  // Whoever evaluates once the actors are gone must not speak to them: for AddressSanitizer.
  runtime.reset();
  evaluator->batches = 1;
  EXPECT_TRUE(evaluator->evaluate(result.z, result.buffers).ok());
}

// Training is over when models change no more, whatever is written and validated after that.
TEST(RealRun, TheTimeOfTrainingIsWithoutWhatFollows) {
  using Clock = std::chrono::steady_clock;
  struct Timed : Waiting {
    void on_checkpoint(const std::string&) override { written = Clock::now(); }
    Clock::time_point written;
  };
  Scenario scenario;
  scenario.steps = scenario.steps_per_epoch = 4;
  scenario.delay = "";
  scenario.folder = fresh_folder("training-time");
  const auto begin = Clock::now();
  RunConfig config = make_run(scenario);
  const auto evaluator = std::make_shared<LongEvaluation>(config.evaluator);
  evaluator->batches = 20;
  config.evaluator = evaluator;
  const auto observer = std::make_shared<Timed>();
  Runtime runtime(std::move(config), observer);
  const RunResult result = observer->wait();
  ASSERT_FALSE(result.error) << result.error->message;
  ASSERT_EQ(observer->validations.size(), 1U);
  EXPECT_LE(result.seconds, std::chrono::duration<double>(observer->written - begin).count());
}

// Asked to stop, a run whose training is over does not wait for what is left of its validations.
TEST(RealRun, AStopLeavesOutValidationsThatAreDue) {
  Scenario scenario;
  scenario.steps = 4;
  scenario.steps_per_epoch = 1;
  scenario.delay = "";
  RunConfig config = make_run(scenario);
  config.evaluator = std::make_shared<LongEvaluation>(config.evaluator);
  // By the time of the first validation the steps, of some microseconds, are long over.
  struct Validated : Waiting {
    void on_validation(Epoch epoch, const Evaluation& evaluation) override {
      Waiting::on_validation(epoch, evaluation);
      if (validations.size() == 1) first.set_value();
    }
    std::promise<void> first;
  };
  const auto observer = std::make_shared<Validated>();
  Runtime runtime(std::move(config), observer);
  ASSERT_EQ(observer->first.get_future().wait_for(std::chrono::seconds(120)),
            std::future_status::ready);
  runtime.request_stop();
  const RunResult result = observer->wait();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_TRUE(result.z.defined());
  EXPECT_LT(observer->validations.size(), 4U);
}

// A worker that stays in its step for long is not waited for without end.
TEST(RealRun, ShutDownSaysWhoDoesNotComeBack) {
  class Held : public LongEvaluation {
   public:
    Held(std::shared_ptr<Compute> inner, std::shared_future<void> gate)
        : LongEvaluation(std::move(inner)), gate_(std::move(gate)) {}
    Gradient gradient(GradientRequest request) override {
      gate_.wait();
      return LongEvaluation::gradient(std::move(request));
    }

   private:
    std::shared_future<void> gate_;
  };
  std::promise<void> gate;
  Scenario scenario;
  scenario.steps = 4;
  scenario.delay = "";
  RunConfig config = make_run(scenario);
  config.evaluator = nullptr;
  config.computes[1] = std::make_shared<Held>(config.computes[1], gate.get_future().share());
  config.timeout = std::chrono::milliseconds(100);
  const auto observer = std::make_shared<Waiting>();
  Runtime runtime(std::move(config), observer);
  const RunResult result = observer->wait();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::timeout);
  EXPECT_FALSE(runtime.shut_down(std::chrono::milliseconds(200)));
  gate.set_value();
  EXPECT_TRUE(runtime.shut_down(std::chrono::seconds(120)));
}

// Nor is what ends after the run: here a transport.
TEST(RealRun, CloseSaysWhatDoesNotEnd) {
  std::promise<void> gate;
  Scenario scenario;
  scenario.steps = 4;
  scenario.delay = "";
  RunConfig config = make_run(scenario);
  config.transport = std::shared_ptr<Transport>(
      config.transport.get(),
      [inner = config.transport, end = gate.get_future().share()](Transport*) { end.wait(); });
  const auto observer = std::make_shared<Waiting>();
  Runtime runtime(std::move(config), observer);
  const RunResult result = observer->wait();
  ASSERT_FALSE(result.error) << result.error->message;
  ASSERT_TRUE(runtime.shut_down(std::chrono::seconds(120)));
  const Duration generous = std::chrono::seconds(120);
  const auto closed = runtime.close({generous, std::chrono::milliseconds(200)});
  gate.set_value();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().message, "the transport has not ended after 0.2 s");
  EXPECT_TRUE(runtime.close({generous, generous}));
}

// The same actors on real threads end with the same bits as in virtual time.
TEST(RealRun, GivesTheBitsOfAVirtualOne) {
  for (const std::string& preset : kSynchronous) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.momentum = 0.9;
    scenario.delay = "lognormal=-8:1";
    const RunResult expected = run(scenario);
    const auto observer = std::make_shared<Waiting>();
    Runtime runtime(make_run(scenario), observer);
    const RunResult real = observer->wait();
    ASSERT_FALSE(real.error) << real.error->message;
    EXPECT_TRUE(at::equal(expected.z.read(), real.z.read()));
    EXPECT_EQ(real.ledger.pending(), 0);
  }
}

}  // namespace virtual_run_test
}  // namespace grapevine
