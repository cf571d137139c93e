// apps/examples/monitoring: the dashboard and the rules use metrics that the endpoint serves, and
// Prometheus' own tool accepts the files and the endpoint's text.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "apps/monitoring/metrics_endpoint.hpp"
#include "tests/apps/monitoring/scrape.hpp"
#include "tests/apps/process.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace monitoring_examples_test {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

const fs::path kFolder = fs::path(GRAPEVINE_SOURCE_DIR) / "apps/examples/monitoring";

std::string text_of(const fs::path& path) {
  EXPECT_TRUE(fs::is_regular_file(path)) << path;
  return read_file(path);
}

Names names_in(const std::string& text) {
  static const std::regex name("grapevine_[a-z0-9_]+");
  Names names;
  for (std::sregex_iterator match(text.begin(), text.end(), name), end; match != end; ++match)
    names.insert(match->str());
  return names;
}

// An endpoint on which everything has happened once.
std::string full_scrape() {
  auto created = MetricsEndpoint::create({"127.0.0.1", 0, ""},
                                         {"sgp", "lenet", "glyphs", "inproc", "1.2.3", 2});
  EXPECT_TRUE(created.ok());
  const std::unique_ptr<MetricsEndpoint> endpoint = *std::move(created);
  StepReport report;
  report.samples = 32;
  report.batch_time_s = 0.5;
  endpoint->on_step(report);
  report.rank = 1;
  report.loss = std::numeric_limits<double>::quiet_NaN();
  endpoint->on_step(report);
  RankFigures figures;
  figures.ledger.produced = figures.ledger.committed = 1;
  figures.ledger.staleness = {{0, 1}};
  figures.waited_ns = {{RankFigures::kNobody, 1}, {1, 1}};
  figures.sent_bytes = {{1, 1}};
  endpoint->on_figures(figures);
  endpoint->on_rank_lost(1);
  endpoint->on_validation(0, 0, {0.5, 0.5, 0.5, 1});
  return scrape(*endpoint);
}

// The names of samples, as queries use them: those of histograms with their suffixes.
Names served_names() {
  Names names;
  std::istringstream lines(full_scrape());
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && line.front() != '#')
      names.insert(line.substr(0, line.find_first_of("{ ")));
  return names;
}

void expect_served(const std::string& file, std::size_t least) {
  const Names used = names_in(text_of(kFolder / file)), served = served_names();
  EXPECT_GE(used.size(), least);
  for (const std::string& name : used) EXPECT_EQ(served.count(name), 1U) << file << ": " << name;
}

TEST(MonitoringExamples, TheRulesUseServedMetrics) { expect_served("rules.yml", 7); }
TEST(MonitoringExamples, TheDashboardUsesServedMetrics) { expect_served("dashboard.json", 12); }

TEST(MonitoringExamples, TheDashboardCanBeImported) {
  const auto dashboard = nlohmann::json::parse(text_of(kFolder / "dashboard.json"));
  EXPECT_GE(dashboard["schemaVersion"], 36);
  EXPECT_EQ(dashboard["templating"]["list"][0]["type"], "datasource");
  EXPECT_EQ(dashboard["templating"]["list"][0]["query"], "prometheus");
  std::set<int> ids;
  for (const auto& panel : dashboard["panels"]) {
    EXPECT_TRUE(ids.insert(panel["id"].get<int>()).second) << panel["id"];
    EXPECT_EQ(panel["datasource"]["uid"], "${datasource}") << panel["title"];
    EXPECT_FALSE(panel["targets"].empty()) << panel["title"];
    const auto& place = panel["gridPos"];
    EXPECT_LE(place["x"].get<int>() + place["w"].get<int>(), 24) << panel["title"];
  }
  EXPECT_GE(ids.size(), 8U);
}

// promtool, of Prometheus' package: a development tool, and no dependency of the project.
class Promtool : public testing::Test {
 protected:
  void SetUp() override {
    if (shell("command -v promtool").exit_code != 0)
      GTEST_SKIP() << "promtool is not installed: it is in the package prometheus";
  }
  static ProcessResult shell(const std::string& line) {
    ProcessOptions options;
    options.program = "/bin/sh";
    return run_process({"-c", line}, options);
  }
  static void expect_good(const std::string& line) {
    const ProcessResult result = shell(line);
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.describe();
  }
};

TEST_F(Promtool, AcceptsTheRules) {
  expect_good("promtool check rules '" + (kFolder / "rules.yml").string() + "'");
}

TEST_F(Promtool, AcceptsTheConfiguration) {
  expect_good("promtool check config '" + (kFolder / "prometheus.yml").string() + "'");
}

TEST_F(Promtool, FindsTheAlertsThatTheRulesAreFor) {
  expect_good("promtool test rules '" + (kFolder / "rules_test.yml").string() + "'");
}

TEST_F(Promtool, AcceptsTheMetrics) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "metrics.txt";
  std::ofstream(file) << full_scrape();
  expect_good("promtool check metrics < '" + file.string() + "'");
}

}  // namespace monitoring_examples_test
}  // namespace grapevine
