#include "apps/average/average_command.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include <ATen/ATen.h>

#include "algorithms/graphs/topology.hpp"
#include "tests/algorithms/graphs/symmetric_matrix.hpp"
#include "tests/apps/verb_runner.hpp"

namespace grapevine {
namespace average_command_test {

const testing_apps::VerbRunner kVerb(make_average_command);

std::string output(const std::string& arguments) { return kVerb.output(arguments); }

std::vector<nlohmann::json> rounds(const std::string& arguments) {
  std::istringstream lines(output(arguments + " --json"));
  std::vector<nlohmann::json> objects;
  for (std::string line; std::getline(lines, line);) {
    objects.push_back(nlohmann::json::parse(line));
  }
  return objects;
}

std::string error(const std::string& arguments) { return kVerb.error(arguments); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(AverageCommand, JsonStartsAtRoundZeroWithTheRanksAsValues) {
  const auto lines = rounds("--ranks 8 --rounds 4 --dim 3");
  ASSERT_EQ(lines.size(), 5U);
  for (std::size_t k = 0; k < lines.size(); ++k) {
    EXPECT_EQ(lines[k].size(), 4U);
    EXPECT_EQ(lines[k]["round"], k);
    EXPECT_NEAR(lines[k]["mean"].get<double>(), 3.5, 1e-12);
    EXPECT_NEAR(lines[k]["weight_sum"].get<double>(), 8, 1e-12);
  }
  EXPECT_EQ(lines[0]["max_deviation"], 3.5);
  EXPECT_GT(lines[2]["max_deviation"].get<double>(), 0.1);
  EXPECT_LT(lines[3]["max_deviation"].get<double>(), 1e-13) << "exact after log2(8) rounds";
}

TEST(AverageCommand, EveryMethodConverges) {
  for (const std::string method : {"push-sum", "symmetric", "bilateral"}) {
    SCOPED_TRACE(method);
    const auto lines =
        rounds("--method " + method + " --topology bipartite-exponential --ranks 16 --rounds 5");
    EXPECT_LT(lines.back()["max_deviation"].get<double>(), 1e-12);
  }
}

// The oracle: x' = W x, w' = W w in double precision, with the matrices of the graph; the roles
// compute in single precision.
TEST(AverageCommand, RolesFollowTheMatricesOfTheirGraph) {
  for (const std::string topology : {"exponential", "star", "grid2d", "ring", "base", "complete"})
    for (const std::string method : {"push-sum", "symmetric"})
      for (const std::int32_t ranks : {2, 5, 6, 8}) {
        SCOPED_TRACE(method + " on " + topology + ", " + std::to_string(ranks) + " ranks");
        const auto lines = rounds("--rounds 9 --method " + method + " --topology " + topology +
                                  " --ranks " + std::to_string(ranks));
        const auto graph = *make_topology(topology, ranks, 1);
        const auto n = static_cast<std::int64_t>(ranks);
        at::Tensor x = at::arange(n, at::kDouble), w = at::ones({n}, at::kDouble);
        for (std::int64_t round = 0; round < 9; ++round) {
          const std::vector<double> entries =
              method == "symmetric" ? symmetric_matrix(*graph, round) : graph->mixing_matrix(round);
          const at::Tensor matrix = at::tensor(entries, at::kDouble).view({n, n});
          x = matrix.mv(x);
          w = matrix.mv(w);
          const at::Tensor z = x / w;
          const auto& line = lines.at(static_cast<std::size_t>(round) + 1);
          EXPECT_NEAR(line["max_deviation"], (z - (ranks - 1) / 2.0).abs().max().item<double>(),
                      1e-5);
          EXPECT_NEAR(line["mean"], z.mean().item<double>(), 1e-5);
          EXPECT_NEAR(line["weight_sum"], ranks, 1e-6);
        }
      }
}

TEST(AverageCommand, FiniteTimeGraphsEndAfterOnePeriod) {
  const auto deviations = [](const std::string& arguments, std::size_t period) {
    const auto lines = rounds(arguments + " --rounds " + std::to_string(period));
    return std::make_pair(lines.at(period - 1)["max_deviation"].get<double>(),
                          lines.at(period)["max_deviation"].get<double>());
  };
  for (const std::string method : {"push-sum", "symmetric"}) {
    const auto seven = deviations("--topology base --ranks 7 --method " + method, 5);
    EXPECT_GT(seven.first, 0.1);
    EXPECT_LT(seven.second, 1e-5);
    const auto twelve = deviations("--topology base --ranks 12 --peers 2 --method " + method, 3);
    EXPECT_GT(twelve.first, 0.1);
    EXPECT_LT(twelve.second, 1e-5);
  }
  const auto eight = deviations("--topology one-peer-exponential --ranks 8", 3);
  EXPECT_GT(eight.first, 0.1);
  EXPECT_LT(eight.second, 1e-6);
}

TEST(AverageCommand, SettingsReachOtherRolesAndParts) {
  const auto last = [](const std::string& arguments) {
    return rounds(arguments).back()["max_deviation"].get<double>();
  };
  EXPECT_LT(last("--method bilateral --rounds 3"), 1e-6) << "on bipartite-exponential";
  EXPECT_LT(last("--set wiring.overlap=true --rounds 60"), 1e-4);
  EXPECT_LT(last("--ranks 6 --dim 16 --rounds 300 --method symmetric --set wiring.compress=top-k "
                 "--set wiring.density=0.25"),
            1e-3);
  EXPECT_GT(last("--ranks 6 --dim 16 --rounds 12 --method symmetric --set wiring.compress=top-k "
                 "--set wiring.density=0.25"),
            1e-3)
      << "a quarter of each difference takes longer";
  // With local steps a rank exchanges at every other round only.
  const auto lines = rounds("--set wiring.local_steps=2 --rounds 6");
  EXPECT_EQ(lines.at(1)["max_deviation"], 3.5);
  EXPECT_EQ(lines.at(2)["max_deviation"], lines.at(3)["max_deviation"]);
  EXPECT_LT(lines.at(6)["max_deviation"], 1e-6);
}

TEST(AverageCommand, DropsAreSurvivedUnlessPlain) {
  const std::string arguments = "--ranks 8 --rounds 300 --drop 0.3 --seed 11";
  const auto robust = rounds(arguments).back();
  EXPECT_LT(robust["max_deviation"].get<double>(), 1e-5);
  EXPECT_NEAR(robust["weight_sum"].get<double>(), 8, 1e-9);
  const auto plain = rounds(arguments + " --plain").back();
  EXPECT_GT(plain["max_deviation"].get<double>(), 1e-3);
  EXPECT_LT(plain["weight_sum"].get<double>(), 1e-3);
}

TEST(AverageCommand, RunningSumsFindTheMeanOnEveryGraph) {
  for (const std::string topology : {"bipartite-exponential", "star", "hypercube", "ring"})
    for (const std::string seed : {"1", "2", "3"}) {
      SCOPED_TRACE(topology + ", seed " + seed);
      const auto lines =
          rounds("--rounds 500 --drop 0.3 --topology " + topology + " --seed " + seed);
      for (const auto& line : lines) ASSERT_NEAR(line["weight_sum"].get<double>(), 8, 1e-9) << line;
      EXPECT_LT(lines.back()["max_deviation"].get<double>(), 1e-5);
    }
}

// The wiring of --drop takes other parts; without the sums its ranks wait for what was lost.
TEST(AverageCommand, SettingsReachTheWiringThatLosesMessages) {
  const auto last = [](const std::string& arguments) {
    return rounds("--rounds 400 --drop 0.3 " + arguments).back();
  };
  EXPECT_LT(last("--set wiring.staleness=2")["max_deviation"].get<double>(), 1e-5);
  EXPECT_LT(last("--set wiring.local_steps=2")["max_deviation"].get<double>(), 1e-5);
  const auto waiting = last("--set wiring.running_sums=false");
  EXPECT_GT(waiting["max_deviation"].get<double>(), 0.1);
  EXPECT_LT(waiting["weight_sum"].get<double>(), 7.5);
  EXPECT_TRUE(contains(error("--drop 0.1 --set wiring.compress=int8"), "replicas"));
}

TEST(AverageCommand, SameSeedSameOutput) {
  const std::string arguments = "--ranks 6 --drop 0.4 --json --seed ";
  EXPECT_EQ(output(arguments + "5"), output(arguments + "5"));
  EXPECT_NE(output(arguments + "5"), output(arguments + "6"));
}

TEST(AverageCommand, WeightsThatUnderflowAreNull) {
  const auto last = rounds("--ranks 2 --rounds 3000 --drop 0.999 --plain").back();
  EXPECT_TRUE(last["max_deviation"].is_null());
}

TEST(AverageCommand, PeopleSeeABarThatShrinks) {
  const std::string text = output("--ranks 6 --rounds 30");
  EXPECT_TRUE(contains(text, "round          mean  max deviation")) << text;
  EXPECT_TRUE(contains(
      text, "    0           2.5      2.500e+00             6  " + std::string(32, '#') + "\n"))
      << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 32);
}

TEST(AverageCommand, TheHeaderSaysWhoseWeightsAreLost) {
  std::istringstream lines(output("--ranks 8 --rounds 20 --drop 0.3"));
  std::string note, header, first;
  std::getline(lines, note);
  std::getline(lines, header);
  std::getline(lines, first);
  EXPECT_TRUE(contains(header, "plain weights")) << header;
  EXPECT_EQ(header.size(), first.size()) << "the columns end together";
}

TEST(AverageCommand, OneRankAndNoRounds) {
  const auto lines = rounds("--ranks 1 --rounds 3");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[3]["max_deviation"], 0);
  EXPECT_EQ(rounds("--rounds 0").size(), 1U);
}

TEST(AverageCommand, BadInputIsNamed) {
  EXPECT_TRUE(contains(error("--ranks 0"), "0 ranks"));
  EXPECT_TRUE(contains(error("--peers 0"), "--peers 0"));
  EXPECT_TRUE(contains(error("--rounds -1"), "--rounds"));
  EXPECT_TRUE(contains(error("--dim 0"), "--dim"));
  EXPECT_TRUE(contains(error("--seed -1"), "--seed"));
  EXPECT_TRUE(contains(error("--ranks 100000 --dim 100000"), "values in all"));
  EXPECT_TRUE(contains(error("--drop 1"), "[0, 1)"));
  EXPECT_TRUE(contains(error("--drop -0.1"), "[0, 1)"));
  EXPECT_TRUE(contains(error("--drop nan"), "[0, 1)"));
  EXPECT_TRUE(contains(error("--method pushsum"), "'push-sum'"));
  EXPECT_TRUE(contains(error("--topology rng"), "'ring'"));
  EXPECT_TRUE(contains(error("--topology hypercube --ranks 5"), "use 4 or 8"));
  EXPECT_TRUE(contains(error("--method symmetric --plain"), "--plain"));
  EXPECT_TRUE(contains(error("--method bilateral --topology ring --ranks 5"), "not bipartite"));
  EXPECT_TRUE(
      contains(error("--method bilateral --topology ring --ranks 5 --drop 0.1"), "not bipartite"));
  EXPECT_TRUE(contains(error("--set wiring.density=0.1"), "density"));
  EXPECT_TRUE(contains(error("--set density=0.1"), "wiring.KEY=VALUE"));
  EXPECT_TRUE(contains(error("--method symmetric --set wiring.peers=2 --drop 0.1"), "--set with"));
  EXPECT_TRUE(contains(error("--plain --set wiring.peers=2 --drop 0.1"), "--set with --drop"));
}

TEST(AverageCommand, UsageErrorsAreLeftToTheParser) {
  EXPECT_THROW(kVerb.run("--ranks 1.5"), CLI::ParseError);
  EXPECT_THROW(kVerb.run("--drop many"), CLI::ParseError);
}

// Ranks as the run saw them: values start at the rank's number, so that the mean is (n - 1) / 2.
double ranks_of(const std::string& arguments) {
  return 2 * rounds(arguments).front().at("mean").get<double>() + 1;
}

TEST(AverageCommand, FileEnvironmentAndCommandLineInThisOrder) {
  const std::string path = testing::TempDir() + "/average.toml";
  std::ofstream(path) << "# five ranks\nranks = 5\nrounds = 0\n";
  const std::string file = "--config " + path;
  EXPECT_EQ(ranks_of(file), 5);
  ::setenv("GRAPEVINE_RANKS", "3", 1);
  EXPECT_EQ(ranks_of(file), 3);
  EXPECT_EQ(ranks_of(file + " --ranks 7"), 7);
  EXPECT_EQ(rounds(file).size(), 1U) << "round 0 alone, as the file says";
  ::unsetenv("GRAPEVINE_RANKS");
  std::ofstream(path) << "rounds = 0\n\nrank = 5\n";
  const std::string text = kVerb.run(file).result.error().message;
  EXPECT_NE(text.find(path + ":3: "), std::string::npos) << text;
  EXPECT_NE(text.find("'ranks'"), std::string::npos) << text;
  std::ofstream(path) << "rounds = \n";
  EXPECT_NE(kVerb.run(file).result.error().message.find(path + ":1: "), std::string::npos);
  EXPECT_FALSE(kVerb.run("--config /nowhere.toml").result.ok());
}

}  // namespace average_command_test
}  // namespace grapevine
