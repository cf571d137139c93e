#include "apps/topology/topology_command.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "algorithms/graphs/topology.hpp"
#include "tests/apps/verb_runner.hpp"

namespace grapevine {
namespace topology_command_test {

const testing_apps::VerbRunner kVerb(make_topology_command);

std::string output(const std::string& arguments) { return kVerb.output(arguments); }

std::string error(const std::string& arguments) { return kVerb.error(arguments); }

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TopologyCommand, JsonHoldsEveryRound) {
  const std::string text = output("exponential --ranks 5 --peers 1 --json");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << "one object, one line";
  const auto object = nlohmann::json::parse(text);
  EXPECT_EQ(object.size(), 7U);
  EXPECT_EQ(object["name"], "exponential");
  EXPECT_EQ(object["ranks"], 5);
  EXPECT_EQ(object["peers"], 1);
  EXPECT_EQ(object["period"], 3);
  EXPECT_EQ(object["doubly_stochastic"], true);
  EXPECT_NEAR(object["contraction"].get<double>(), 0.202, 5e-4);
  ASSERT_EQ(object["rounds"].size(), 3U);
  for (std::size_t round = 0; round < 3; ++round) {
    ASSERT_EQ(object["rounds"][round].size(), 5U);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(object["rounds"][round][static_cast<std::size_t>(i)],
                nlohmann::json::array({(i + (1 << round)) % 5}));
    }
  }
}

TEST(TopologyCommand, JsonAgreesWithTheGraphForEveryName) {
  for (const std::string& name : topology_names()) {
    SCOPED_TRACE(name);
    const auto object = nlohmann::json::parse(output(name + " --ranks 8 --peers 2 --json"));
    const auto topology = make_topology(name, 8, 2);
    ASSERT_TRUE(topology.ok());
    for (std::int64_t round = 0; round < (*topology)->period(); ++round) {
      for (Rank i = 0; i < 8; ++i) {
        EXPECT_EQ(object["rounds"][static_cast<std::size_t>(round)][static_cast<std::size_t>(i)]
                      .get<std::vector<Rank>>(),
                  (*topology)->out(round, i));
      }
    }
    EXPECT_EQ(object["contraction"].get<double>(), (*topology)->contraction());
    EXPECT_EQ(object["doubly_stochastic"].get<bool>(), (*topology)->doubly_stochastic());
  }
}

TEST(TopologyCommand, WeightsOfTheGraphStandBesideItsDestinations) {
  const auto object = nlohmann::json::parse(output("base --ranks 5 --json"));
  ASSERT_EQ(object["weights"].size(), 5U);
  for (std::size_t round = 0; round < 5; ++round)
    for (std::size_t i = 0; i < 5; ++i)
      EXPECT_EQ(object["weights"][round][i].size(), object["rounds"][round][i].size());
  EXPECT_EQ(object["rounds"][2][4], nlohmann::json::array({3}));
  EXPECT_NEAR(object["weights"][2][4][0].get<double>(), 0.8, 1e-7);
  const std::string table = output("base --ranks 5");
  EXPECT_TRUE(contains(table, "weights            the graph's own\n")) << table;
  EXPECT_TRUE(contains(table, "\n   4  -        -        3:0.8    -        -\n")) << table;
  EXPECT_TRUE(contains(table, "0 (a period averages exactly")) << table;
  EXPECT_TRUE(contains(output("ring"), "weights            even, 1/(messages + 1)\n"));
}

TEST(TopologyCommand, DotDrawsTwoWayEdgesOnce) {
  const std::string ring = output("ring --ranks 4 --peers 2 --dot");
  EXPECT_TRUE(contains(ring, "digraph \"ring\" {")) << ring;
  EXPECT_TRUE(contains(ring, "0 -> 3 [dir=both];")) << ring;
  EXPECT_FALSE(contains(ring, "3 -> 0")) << ring;
  const std::string exponential = output("exponential --ranks 4 --dot");
  EXPECT_TRUE(contains(exponential, "3 -> 0 [label=\"0\"];")) << exponential;
  EXPECT_TRUE(contains(exponential, "1 -> 3 [dir=both, label=\"1\"];")) << exponential;
}

TEST(TopologyCommand, TableShowsWhatTheGraphIs) {
  const std::string text = output("exponential --ranks 6 --peers 1");
  for (const std::string part : {"period             3 rounds", "1 message sent by a rank",
                                 "0.2165 per period, 0.6005 per round", "doubly stochastic  yes",
                                 "rank  round 0  round 1  round 2", "   5  0        1        3"}) {
    EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
  }
  EXPECT_TRUE(contains(output("exponential --ranks 8"), "0 (a period averages exactly"));
  EXPECT_TRUE(contains(output("star --ranks 5"), "1 to 4 messages"));
  const std::string large = output("linear --ranks 100");
  EXPECT_TRUE(contains(large, "and 84 more ranks")) << large;
  EXPECT_TRUE(contains(large, "more rounds")) << large;
  std::istringstream lines(large);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << line;
  }
}

TEST(TopologyCommand, ThousandsOfRanksSkipTheContraction) {
  const auto object = nlohmann::json::parse(output("ring --ranks 3000 --json"));
  EXPECT_TRUE(object["contraction"].is_null());
  EXPECT_EQ(object["rounds"][0].size(), 3000U);
}

TEST(TopologyCommand, ReadsEdgeLists) {
  const std::string path = testing::TempDir() + "/topology_command_edges.txt";
  std::ofstream(path) << "0 1\n2 -> 0\n";
  const auto object = nlohmann::json::parse(output("file:" + path + " --ranks 3 --json"));
  EXPECT_EQ(object["rounds"], nlohmann::json::parse("[[[1],[0],[0]]]"));
  EXPECT_EQ(object["doubly_stochastic"], false);
  const std::string table = output("file:" + path + " --ranks 4");
  EXPECT_TRUE(contains(table, "they cannot agree")) << table;
  std::remove(path.c_str());
}

TEST(TopologyCommand, BadInputIsNamed) {
  EXPECT_TRUE(contains(error("ring --ranks 0"), "0 ranks"));
  EXPECT_TRUE(contains(error("ring --ranks -1 --json"), "-1 ranks"));
  EXPECT_TRUE(contains(error("ring --peers 0"), "0 peers"));
  EXPECT_TRUE(contains(error("expnential"), "'exponential'"));
  EXPECT_TRUE(contains(error("hypercube --ranks 7 --json"), "use 4 or 8 ranks"));
  EXPECT_TRUE(contains(error("file:/no/such/file --ranks 4"), "/no/such/file"));
}

TEST(TopologyCommand, PrintsInOneFormat) {
  EXPECT_TRUE(contains(error("ring --json --dot"), "--json and --dot"));
}

// The hub of a star has as many edges as all others together.
TEST(TopologyCommand, OnlyPeriodsOfManyEdgesAreRefused) {
  EXPECT_TRUE(contains(output("star --ranks 4200"), "4200"));
  EXPECT_TRUE(contains(error("linear --ranks 20000"), "use fewer ranks"));
}

TEST(TopologyCommand, UsageErrorsAreLeftToTheParser) {
  EXPECT_THROW(kVerb.run("ring --ranks many"), CLI::ParseError);
  EXPECT_THROW(kVerb.run("--ranks 4"), CLI::ParseError);
}

}  // namespace topology_command_test
}  // namespace grapevine
