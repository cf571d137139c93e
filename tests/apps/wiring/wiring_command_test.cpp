#include "apps/wiring/wiring_command.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "algorithms/wiring/wiring.hpp"
#include "tests/apps/verb_runner.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace wiring_command_test {

const testing_apps::VerbRunner kVerb(make_wiring_command);

std::string output(const std::string& arguments) { return kVerb.output(arguments); }

std::string refusal(const std::string& arguments) { return kVerb.error(arguments); }

std::string write(const std::string& name, const std::string& text) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / name).string();
  std::ofstream(path) << text;
  return path;
}

std::map<std::string, std::string> values_of(const Resolved& resolved) {
  std::map<std::string, std::string> values;
  for (const ResolvedKey& key : resolved.keys) values[key.key] = key.value;
  return values;
}

TEST(WiringCommand, ListsEveryPresetWithItsPaper) {
  const std::string table = output("list");
  for (const Preset& preset : presets())
    for (const std::string& text : {preset.name, preset.title, preset.paper})
      EXPECT_NE(table.find(text), std::string::npos) << text;
  const auto objects = nlohmann::json::parse(output("list --json"));
  ASSERT_EQ(objects.size(), presets().size());
  EXPECT_EQ(objects[0]["name"], presets()[0].name);
  EXPECT_EQ(objects[0]["wiring"]["exchange"], presets()[0].wiring.keys().at("exchange"));
}

// What show prints is a wiring again, with the same value of each key.
TEST(WiringCommand, ShownPresetsAreTheSameWiring) {
  for (const Preset& preset : presets()) {
    const std::string toml = output("show " + preset.name);
    const auto read = Wiring::parse_toml(toml, preset.name);
    ASSERT_TRUE(read.ok()) << read.error().message << "\n" << toml;
    const auto again = resolve_keys(*read), first = resolve_keys(preset.wiring);
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(again.ok()) << preset.name << ": " << again.error().message << "\n" << toml;
    EXPECT_EQ(values_of(*again), values_of(*first)) << preset.name;
    EXPECT_EQ(output("check " + write(preset.name + ".toml", toml) + " --ranks 4"),
              testing::TempDir() + preset.name + ".toml: valid, exchange = '" +
                  preset.wiring.keys().at("exchange") + "'\n");
  }
}

TEST(WiringCommand, SaysWhereEachValueComesFrom) {
  const std::string path =
      write("job.toml", "algorithm = \"osgp\"\n[wiring]\nstaleness = 2\npeers = 2\n");
  const auto shown = nlohmann::json::parse(output("show " + path + " --json"));
  EXPECT_EQ(shown["keys"]["overlap"]["source"], "preset osgp");
  EXPECT_EQ(shown["keys"]["staleness"]["source"], path);
  EXPECT_EQ(shown["keys"]["staleness"]["value"], "2");
  EXPECT_EQ(shown["keys"]["update"]["source"], "default");
  const std::string toml = output("show osgp");
  EXPECT_TRUE(std::regex_search(toml, std::regex("overlap = true +# preset osgp: "))) << toml;
  EXPECT_TRUE(std::regex_search(toml, std::regex("update = .before. +# default: "))) << toml;
  EXPECT_NE(output("show eager-quorum").find("# quorum "), std::string::npos);
}

std::string read_source(const std::string& path) {
  return read_file(std::string(GRAPEVINE_SOURCE_DIR) + "/" + path);
}

// The text of a document between "<!-- NAME -->" and "<!-- end of NAME -->".
std::string part_of_document(const std::string& document, const std::string& name) {
  const std::string all = read_source(document), begin = "<!-- " + name + " -->\n",
                    end = "<!-- end of " + name + " -->";
  const auto from = all.find(begin), to = all.find(end);
  EXPECT_NE(from, std::string::npos) << begin;
  EXPECT_NE(to, std::string::npos) << end;
  return from == std::string::npos ? "" : all.substr(from + begin.size(), to - from - begin.size());
}

TEST(WiringCommand, TheDocumentsTablesAreThoseOfTheProgram) {
  const std::string document = "docs/composition.md", remedy = "run scripts/docs-tables";
  EXPECT_EQ(part_of_document(document, "keys"), output("keys --markdown")) << remedy;
  EXPECT_EQ(part_of_document(document, "presets"), output("list --markdown")) << remedy;
}

TEST(WiringCommand, TheDocumentQuotesTheExampleThatIsBuilt) {
  const std::string folder = "apps/examples/own_role/", document = "docs/package.md",
                    remedy = "run scripts/docs-tables";
  EXPECT_EQ(part_of_document(document, "own_role"),
            "```cpp\n" + read_source(folder + "main.cpp") + "```\n")
      << remedy;
  EXPECT_EQ(part_of_document(document, "own_role_cmake"),
            "```cmake\n" + read_source(folder + "CMakeLists.txt") + "```\n")
      << remedy;
  EXPECT_EQ(part_of_document("docs/composition.md", "three_levels"),
            "```toml\n" + read_source("apps/examples/own_wiring/three_levels.toml") + "```\n")
      << remedy;
}

// Each level is a table of its own, and what is shown is the same wiring again.
TEST(WiringCommand, ShowsLevelsAsTables) {
  const std::string path = GRAPEVINE_SOURCE_DIR "/apps/examples/own_wiring/three_levels.toml";
  const std::string toml = output("show " + path + " --ranks 8");
  const auto again = Wiring::parse_toml(toml, "shown");
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << toml;
  EXPECT_EQ(again->keys().at("level.2.exchange"), "gossip");
  EXPECT_EQ(again->keys().at("outer_momentum"), "0.5");
  EXPECT_EQ(again->keys().at("level.2.update"), "before");
  EXPECT_NE(refusal("check " + path + " --ranks 6").find("groups of 4 ranks"), std::string::npos);
}

TEST(WiringCommand, ChecksThePromisesOfTheRoles) {
  EXPECT_EQ(output("check sgp --conformance"), "sgp: valid, exchange = 'gossip'\n");
  EXPECT_NE(refusal("show sgp --conformance").find("goes with check"), std::string::npos);
}

TEST(WiringCommand, ListsEveryKeyOnce) {
  const auto keys = nlohmann::json::parse(output("keys --json"));
  ASSERT_EQ(keys.size(), wiring_keys().size());
  std::set<std::string> names;
  for (const auto& key : keys) {
    EXPECT_TRUE(names.insert(key["key"]).second) << key;
    EXPECT_NE(key["values"], "") << key;
    EXPECT_NE(key["explanation"], "") << key;
  }
  EXPECT_EQ(keys[0]["key"], "exchange");
  EXPECT_EQ(keys[0]["counts_where"], "");
  EXPECT_NE(output("keys").find("counts with exchange: partial, group; activation: quorum"),
            std::string::npos);
}

TEST(WiringCommand, RefusesWhatIsNoWiring) {
  EXPECT_NE(refusal("shw osgp").find("did you mean 'show'?"), std::string::npos);
  EXPECT_NE(refusal("show").find("which one?"), std::string::npos);
  EXPECT_NE(refusal("show ogsp").find("did you mean 'osgp'?"), std::string::npos);
  EXPECT_NE(refusal("list osgp").find("--json or --markdown alone"), std::string::npos);
  EXPECT_NE(refusal("check osgp --dot").find("--dot"), std::string::npos);
  EXPECT_NE(refusal("check /no/such.toml").find("/no/such.toml"), std::string::npos);
  EXPECT_NE(refusal("check " + write("none.toml", "steps = 3\n")).find("neither"),
            std::string::npos);
  const std::string bad = write("bad.toml", "[wiring]\nexchange = \"gossip\"\nquorum = 2\n");
  EXPECT_EQ(refusal("check " + bad), bad +
                                         ": wiring.quorum = '2' does not fit exchange = 'gossip': "
                                         "it belongs to partial and group, "
                                         "choose exchange = 'partial'");
  EXPECT_NE(
      refusal("check " + write("key.toml", "[wiring]\ntopolgy = \"ring\"\n")).find("key.toml:2"),
      std::string::npos);
  const std::string cube =
      write("cube.toml", "[wiring]\nexchange = \"gossip\"\ntopology = \"hypercube\"\n");
  EXPECT_EQ(output("check " + cube), cube + ": valid, exchange = 'gossip'\n");
  EXPECT_NE(refusal("check " + cube + " --ranks 6").find("power of two"), std::string::npos);
  EXPECT_NE(refusal("show osgp --ranks 0").find("expected 1 or more"), std::string::npos);
  EXPECT_NE(refusal("show osgp --dot --ranks 0").find("1..64"), std::string::npos);
  EXPECT_NE(refusal("show osgp --dot --ranks 1000").find("1..64"), std::string::npos);
}

std::ptrdiff_t count(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), regex), {});
}

// The shipped roles send what is drawn.
TEST(WiringCommand, DrawsTheActorsAndTheMessagesOfOneExchange) {
  const std::string osgp = output("show osgp --dot --ranks 4");
  EXPECT_EQ(count(osgp, "label=\"GpuWorker\""), 4);
  EXPECT_EQ(count(osgp, "peer(\\d) -> peer(\\d) \\[label=\"share"), 4);
  EXPECT_EQ(count(osgp, "-> peer\\d \\[label=\"Gradient\""), 4);
  EXPECT_NE(osgp.find("peer0 -> peer1 [label=\"share\\n4100 B\" constraint"), std::string::npos)
      << osgp;

  const std::string gem = output("show gem --dot --ranks 3");
  EXPECT_EQ(count(gem, "label=\"GpuWorker\""), 3);
  EXPECT_EQ(count(gem, "-> peer3 \\[label=\"ask \\d+ B\\\\ncommit \\d+ B\"\\]"), 3) << gem;
  EXPECT_EQ(count(gem, "peer3 -> peer\\d \\[label=\"grant \\d+ B\\\\nreceipt \\d+ B\"\\]"), 3)
      << gem;
  // Only arrows of ranks beside each other: the labels of those to one server would overlap.
  EXPECT_EQ(count(osgp, "constraint=false"), 4);
  EXPECT_EQ(count(gem, "constraint=false"), 0);
}

// The messages inside the nodes are drawn too, but end no exchange.
TEST(WiringCommand, DrawsTheExchangeBetweenNodes) {
  const std::string path = write("nodes.toml", "algorithm = \"sgp\"\n[wiring]\nhierarchy = 2\n");
  const std::string dot = output("show " + path + " --dot --ranks 4");
  EXPECT_EQ(count(dot, "peer0 -> peer2 \\[label=\"share 4100 B\\\\neach way\" dir=both"), 1) << dot;
  // What differs by direction names both ranks.
  EXPECT_EQ(count(dot,
                  "peer0 -> peer1 \\[label=\"0 → 1: chunk 4100 B; parameters ×2 \\d+ B\\\\n"
                  "1 → 0: chunk 4100 B\" dir=both"),
            1)
      << dot;
}

// Graphviz draws two arrows between ranks beside each other on top of each other, also their
// labels.
TEST(WiringCommand, DrawsOneLineForEachPairOfWorkers) {
  const std::regex arrow("peer(\\d) -> peer(\\d) ");
  for (const Preset& preset : presets()) {
    const std::string dot = output("show " + preset.name + " --dot --ranks 4");
    std::set<std::pair<int, int>> pairs;
    for (std::sregex_iterator one(dot.begin(), dot.end(), arrow), end; one != end; ++one) {
      const int from = std::stoi((*one)[1]), to = std::stoi((*one)[2]);
      const bool level = from < 4 && to < 4;
      const auto pair = level ? std::minmax({from, to}) : std::pair<int, int>(from, to);
      EXPECT_TRUE(pairs.insert(pair).second) << preset.name << "\n" << dot;
    }
  }
}

// A file is the wiring that train makes of it.
TEST(WiringCommand, ReadsAFileAsTrainDoes) {
  const auto shown = [](const std::string& name, const std::string& text) {
    return nlohmann::json::parse(output("show " + write(name, text) + " --json"))["keys"];
  };
  EXPECT_EQ(shown("steps.toml", "[wiring]\nlocal_steps = 8\n")["exchange"]["value"], "gossip");
  EXPECT_EQ(shown("ring.toml", "[wiring]\ntopology = \"ring\"\n")["averaging"]["value"],
            "push-sum");
  EXPECT_EQ(shown("own.toml", "[wiring]\nexchange = \"aggregate\"\n").count("topology"), 0U);
  EXPECT_NE(refusal("check " + write("graph.toml", "[wiring]\ntopology = \"rnig\"\n"))
                .find("did you mean 'ring'?"),
            std::string::npos);
}

TEST(WiringCommand, DrawsEveryPreset) {
  for (const Preset& preset : presets()) {
    const std::string dot = output("show " + preset.name + " --dot --ranks 4");
    EXPECT_EQ(dot.rfind("digraph wiring {", 0), 0U) << preset.name;
    EXPECT_GE(count(dot, "peer\\d -> peer\\d "), 2) << preset.name << "\n" << dot;
    EXPECT_EQ(count(dot, "\\{"), count(dot, "\\}")) << preset.name;
  }
}

}  // namespace wiring_command_test
}  // namespace grapevine
