// Compressed training by the shipped actors, in virtual time: the optimum, and the bytes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "actors/run/simulation/run_virtual.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "gpu/quadratic_compute.hpp"
#include "net/inproc/inproc.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace compressed_run_test {

using sim::Keys;
using sim::operator+;

constexpr std::int64_t kD = 64;

struct Quiet : RunObserver {
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult) override {}
};

std::unique_ptr<QuadraticCompute> quadratic(Rank rank, std::int32_t ranks) {
  QuadraticConfig config;
  config.dimension = kD;
  config.rank = rank;
  config.ranks = ranks;
  config.seed = 3;
  config.heterogeneity = 1;
  return std::move(*QuadraticCompute::make(config));
}

RunResult train(const Keys& keys, std::int32_t ranks, Step steps) {
  const Plan plan = sim::plan_of(keys);
  LrConfig rate;
  rate.lr = 0.05;
  rate.spec = "step:0.1@0.5,0.75";  // ranks with optima of their own agree as the rate goes down
  RunConfig run;
  run.ranks = all_ranks_of(plan, ranks);
  run.seed = 1;
  run.parts =
      *make_parts(plan, {steps, static_cast<double>(steps)}, *LrSchedule::make(rate), {}, ranks);
  run.transport = make_inproc_transport(run.ranks);
  for (Rank r = 0; r < ranks; ++r) run.computes.push_back(quadratic(r, ranks));
  run.evaluator = quadratic(0, ranks);
  run.delay = *parse_delay("lognormal=-4:1", ranks, 1);
  RunResult result = run_virtual(std::move(run), std::make_shared<Quiet>());
  EXPECT_FALSE(result.error) << result.error->message;
  return result;
}

double distance_to_optimum(const RunResult& result) {
  const at::Tensor optimum = quadratic(0, 4)->optimum();
  return ((result.z.read() - optimum).norm() / optimum.norm()).item<double>();
}

// Of two results, in the optimum's norm.
double distance(const RunResult& a, const RunResult& b) {
  return ((a.z.read() - b.z.read()).norm() / quadratic(0, 4)->optimum().norm()).item<double>();
}

// Gossip with top-k: through compressed differences all ranks come to the optimum; sparse models
// without error feedback leave every rank at the optimum of its own.
TEST(CompressedRun, GossipNeedsCompressedDifferences) {
  const Keys gossip = {{"exchange", "gossip"},
                       {"averaging", "symmetric"},
                       {"topology", "ring"},
                       {"compress", "top-k"},
                       {"density", "0.1"}};
  const RunResult differences = train(gossip, 8, 2000);
  EXPECT_LT(differences.consensus_distance, 0.05);
  EXPECT_LT(distance_to_optimum(differences), 0.01);

  Keys plain = gossip;
  plain.emplace_back("error_feedback", "false");
  EXPECT_GT(train(plain, 8, 2000).consensus_distance, 0.5);
}

// From a distance of 1. The sparse ones see an entry every d/k steps, and the rate falls by steps.
TEST(CompressedRun, AggregatesReachTheOptimum) {
  for (const std::string reduce : {"all-gather", "all-gather-reselect", "butterfly", "tree"}) {
    SCOPED_TRACE(reduce);
    const RunResult result =
        train({{"compress", "top-k"}, {"density", "0.05"}, {"sparse_reduce", reduce}}, 6, 2000);
    EXPECT_LT(distance_to_optimum(result), 0.1);
    EXPECT_EQ(result.consensus_distance, 0);
  }
  for (const std::string compress : {"random-k", "fp16", "bf16", "int8", "sign"}) {
    SCOPED_TRACE(compress);
    Keys keys = {{"compress", compress}};
    if (compress == "random-k") keys.emplace_back("density", "0.05");
    EXPECT_LT(distance_to_optimum(train(keys, 4, 2000)), compress == "random-k" ? 0.1 : 0.01);
  }
}

// Where whole commits lead. That is no optimum: clients at their own speed, whose rates fall by
// their own steps, pull theta towards their own optima.
TEST(CompressedRun, ServersComeWhereWholeCommitsLead) {
  for (const std::string preset : {"gem", "downpour", "adaptive"}) {
    const RunResult whole = train(sim::keys_of(preset), 4, 2000);
    EXPECT_LT(distance_to_optimum(whole), 0.35);
    for (const Keys& keys :
         {Keys{{"compress", "top-k"}, {"density", "0.1"}},
          Keys{{"compress", "top-k"}, {"density", "0.1"}, {"servers", "3"}, {"value_type", "f16"}},
          Keys{{"compress", "int8"}}}) {
      SCOPED_TRACE(preset + ", " + keys.front().second + ", " + std::to_string(keys.size()));
      const RunResult result = train(sim::keys_of(preset) + keys, 4, 2000);
      EXPECT_LT(distance(result, whole), 0.12);
      EXPECT_EQ(result.ledger.dropped, 0);
    }
  }
}

// What a commit saves, as the transport counts it; all else is sent as before.
TEST(CompressedRun, CommitsTakeTheBytesOfTheFormula) {
  constexpr std::uint64_t kSteps = 10, kRanks = 4, kK = 6, kWhole = 100 + 4 * kD, kPacked = 132;
  for (const std::string preset : {"gem", "downpour", "adaptive"}) {
    SCOPED_TRACE(preset);
    const Keys top_k = {{"compress", "top-k"}, {"density", "0.1"}};
    const RunResult dense = train(sim::keys_of(preset), kRanks, kSteps);
    for (const auto& [type, of_entry] :
         std::vector<std::pair<std::string, std::uint64_t>>{{"f32", 8}, {"f16", 6}}) {
      const RunResult packed =
          train(sim::keys_of(preset) + top_k + Keys{{"value_type", type}}, kRanks, kSteps);
      EXPECT_EQ(packed.ledger.sent, dense.ledger.sent);
      EXPECT_EQ(dense.ledger.bytes_sent - packed.ledger.bytes_sent,
                kSteps * kRanks * (kWhole - kPacked - of_entry * kK));
    }
  }
}

// As the transport counts them: payload and a header of 132 bytes for each message.
TEST(CompressedRun, TheTransportCountsTheBytesOfTheFormulas) {
  constexpr std::uint64_t kSteps = 10, kRanks = 8, kK = 6, kHeader = 132;
  for (const auto& [reduce, messages_per_rank] : std::vector<std::pair<std::string, std::uint64_t>>{
           {"all-gather", 7}, {"all-gather-reselect", 7}, {"butterfly", 3}}) {
    SCOPED_TRACE(reduce);
    const RunResult result = train(
        {{"compress", "top-k"}, {"density", "0.1"}, {"sparse_reduce", reduce}}, kRanks, kSteps);
    const std::uint64_t messages = kSteps * kRanks * messages_per_rank;
    EXPECT_EQ(result.ledger.sent, messages);
    EXPECT_EQ(result.ledger.bytes_sent, messages * (8 * kK + kHeader));
  }
}

}  // namespace compressed_run_test
}  // namespace grapevine
