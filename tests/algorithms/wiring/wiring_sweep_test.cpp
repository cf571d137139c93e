// Every pair of keys, with two or more values each, beside every role: it runs, or is refused with
// a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>

#include "algorithms/lockstep/conformance.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace wiring_sweep_test {

using sim::Keys;
using sim::operator+;

constexpr std::int32_t kRanks = 4;
constexpr Step kSteps = 40;

// Two values or more of each key that are not its default; `exchange` is swept by itself.
const std::map<std::string, std::vector<std::string>>& values() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"pack", {"model", "difference"}},
      {"local_steps", {"3", "0:1,2:3"}},
      {"qsr", {"0.2", "0.1"}},
      {"outer", {"slowmo", "nesterov"}},
      {"outer_lr", {"0.5", "1"}},
      {"outer_momentum", {"0", "0.5"}},
      {"outer_schedule", {"step:0.5@2", "cosine:0.2"}},
      {"compress", {"top-k", "int8"}},
      {"density", {"0.5", "1"}},
      {"density_warmup", {"1,0.8", "dgc"}},
      {"per_layer", {"true", "false"}},
      {"value_type", {"f16", "f32"}},
      {"sparse_reduce", {"tree", "butterfly"}},
      {"all_reduce", {"direct", "ring", "doubling"}},
      {"bucket_bytes", {"8", "20"}},
      {"selection", {"sampled", "exact"}},
      {"error_feedback", {"true", "false"}},
      {"residual_decay", {"0.9", "0.5"}},
      {"momentum_correction", {"true", "false"}},
      {"momentum_masking", {"true", "false"}},
      {"consensus_step", {"0.5", "0.9"}},
      {"clip", {"20", "100"}},
      {"clip_at", {"sum", "local"}},
      {"topology", {"ring", "bipartite-exponential", "base"}},
      {"peers", {"1", "0:1,2:2"}},
      {"averaging", {"symmetric", "biased"}},
      {"update", {"before", "after"}},
      {"overlap", {"true", "false"}},
      {"running_sums", {"true", "false"}},
      {"tracking", {"true", "false"}},
      {"quasi_global", {"0.1", "0.5"}},
      {"staleness", {"1", "0:3,2:2"}},
      {"activation", {"solo", "quorum"}},
      {"quorum", {"2", "0:4,2:1"}},
      {"grace", {"0.1", "2"}},
      {"scale", {"samples", "active"}},
      {"group_size", {"2", "3"}},
      {"groups", {"grid", "drawn"}},
      {"rule", {"downpour", "delayed-nesterov"}},
      {"outer_every", {"4", "8"}},
      {"servers", {"2", "3"}},
      {"kappa", {"0.5", "2"}},
      {"section", {"strict", "relaxed"}},
      {"section_timeout", {"5", "20"}},
      {"elasticity", {"0.5", "0.8"}},
      {"synchronous", {"true", "false"}},
      {"hierarchy", {"2", "4"}}};
  return all;
}

// What else a key needs to count at all, so that the sweep reaches it.
Keys needs(const std::string& key) {
  static const std::map<std::string, Keys> all = {
      {"outer_lr", {{"outer", "nesterov"}}},
      {"outer_momentum", {{"outer", "nesterov"}}},
      {"outer_schedule", {{"outer", "nesterov"}}},
      {"outer", {{"pack", "difference"}}},
      {"density", {{"compress", "top-k"}}},
      {"density_warmup", {{"compress", "top-k"}}},
      {"per_layer", {{"compress", "top-k"}}},
      {"value_type", {{"compress", "top-k"}}},
      {"selection", {{"compress", "top-k"}}},
      {"sparse_reduce", {{"compress", "top-k"}}},
      {"error_feedback", {{"compress", "top-k"}}},
      {"residual_decay", {{"compress", "top-k"}}},
      {"momentum_correction", {{"compress", "top-k"}}},
      {"momentum_masking", {{"compress", "top-k"}, {"momentum_correction", "true"}}},
      {"consensus_step", {{"compress", "top-k"}}},
      {"clip_at", {{"clip", "20"}}},
      {"quorum", {{"activation", "quorum"}}},
      {"grace", {{"activation", "quorum"}}},
      {"elasticity", {{"rule", "easgd"}}},
      {"running_sums", {{"overlap", "true"}}},
      {"outer_every", {{"rule", "delayed-nesterov"}}},
      {"synchronous", {{"rule", "easgd"}}}};
  const auto found = all.find(key);
  Keys keys = found == all.end() ? Keys() : found->second;
  if (key.rfind("outer_", 0) == 0) keys.emplace_back("pack", "difference");
  return keys;
}

// Keys that a later one of the same name replaces.
std::map<std::string, std::string> merged(const Keys& keys) { return {keys.begin(), keys.end()}; }

std::string text_of(const std::map<std::string, std::string>& keys) {
  std::string text;
  for (const auto& [key, value] : keys) text += key + "=" + value + " ";
  return text;
}

// Every key that counts, with its value: equal texts are equal plans.
std::string text_of(const std::vector<ResolvedKey>& keys) {
  std::string text;
  for (const ResolvedKey& key : keys) text += key.key + "=" + key.value + " ";
  return text;
}

// A wiring that was accepted keeps the promises of its role.
void expect_conforms(const Wiring& wiring) {
  ConformanceOptions options;
  options.ranks = {kRanks};
  options.dimensions = {13};
  options.steps = kSteps;
  options.seed = 11;
  for (const std::string& violation : check_conformance(wiring, options))
    ADD_FAILURE() << violation;
}

using Parts = Expected<std::shared_ptr<const SharedParts>>;

Parts parts_of(const Plan& plan) {
  OptimizerConfig optimizer;
  optimizer.momentum = plan.role->uses_momentum(plan) ? 0.5 : 0;
  LrConfig rate;
  rate.lr = 0.1;
  return make_parts(plan, {kSteps, 10}, *LrSchedule::make(rate), optimizer, kRanks);
}

// Why a wiring is refused, without its values: "`KEY` with `OTHER = VALUE`" and the sentence. Empty
// where a key is merely none of the role's, or of the parts that the wiring has.
std::pair<std::string, std::string> reason_of(const std::string& message) {
  if (message.find("it belongs to") != std::string::npos) return {};
  static const std::regex pattern("wiring\\.(\\w+)(?: = '[^']*')? does not fit (?:(.*?): )?(.*)");
  std::smatch match;
  std::string advice = message;
  for (const char* end : {", choose ", ": choose "}) advice = advice.substr(0, advice.rfind(end));
  if (std::regex_match(advice, match, pattern)) {
    std::string beside = match[2];
    beside.erase(std::remove(beside.begin(), beside.end(), '\''), beside.end());
    return {"`" + match[1].str() + "`" + (beside.empty() ? "" : " with `" + beside + "`"),
            match[3]};
  }
  return {"the number of ranks", std::regex_replace(advice, std::regex("[0-9]+\\b"), "N")};
}

// The rows of docs/composition.md on one role: how many wirings ran, and what is refused and why.
std::string rows_of(const std::string& role, std::int64_t ran,
                    const std::map<std::string, std::string>& refusals) {
  std::string rows = "| `" + role + "` | " + std::to_string(ran) + " wirings run | |\n";
  for (const auto& [sentence, keys] : refusals)
    rows += "| `" + role + "` | refused: " + keys + " | " + sentence + " |\n";
  return rows;
}

// Those that the document has; GRAPEVINE_SWEEP_ROWS=DIR: written to DIR/<role>, for
// scripts/docs-tables.
void expect_documented(const std::string& role, const std::string& rows) {
  if (const char* folder = std::getenv("GRAPEVINE_SWEEP_ROWS")) {
    std::ofstream(std::string(folder) + "/" + role) << rows;
    return;
  }
  std::ifstream document(GRAPEVINE_SOURCE_DIR "/docs/composition.md");
  std::string found, line;
  bool inside = false;
  while (std::getline(document, line)) {
    if (line == "<!-- sweep -->") inside = true;
    if (line == "<!-- end of sweep -->") inside = false;
    if (inside && line.rfind("| `" + role + "` |", 0) == 0) found += line + "\n";
  }
  EXPECT_EQ(found, rows) << "scripts/docs-tables writes the table anew";
}

class WiringSweep : public testing::TestWithParam<std::string> {};

TEST_P(WiringSweep, EveryPairOfKeysRunsOrIsRefusedWithAReason) {
  std::set<std::string> done, plans;
  std::int64_t ran = 0, refused = 0;
  std::map<std::string, std::string> refusals;  // the keys, by the sentence
  const auto try_wiring = [&](const Keys& keys) {
    auto all = merged(keys);
    // The default keeps one entry of this small vector.
    if (all.count("compress") > 0 && all.at("compress") == "top-k") all.emplace("density", "0.5");
    // Only exchanges that overlap are skipped.
    if (GetParam() == "gossip" && all.count("staleness") > 0) all.emplace("overlap", "true");
    // Momentum beside what compression delays does not settle in a run this short.
    const bool nesterov = (all.count("outer") > 0 && all.at("outer") == "nesterov") ||
                          (all.count("rule") > 0 && all.at("rule") == "delayed-nesterov");
    if (nesterov) all.emplace("outer_momentum", "0.5");
    if (!done.insert(text_of(all)).second) return;
    SCOPED_TRACE(text_of(all));
    Wiring wiring;
    for (const auto& [key, value] : all) ASSERT_TRUE(wiring.set(key, value).ok()) << key;
    const auto resolved = resolve_keys(wiring);
    const auto parts = resolved ? parts_of(resolved->plan) : Parts(resolved.error());
    if (parts.ok()) {
      ++ran;
      // A value that is the default, or one that another key implies: that plan has run.
      if (plans.insert(text_of(resolved->keys)).second) expect_conforms(wiring);
      return;
    }
    ++refused;
    const std::string& why = parts.error().message;
    EXPECT_EQ(parts.error().code, Errc::bad_input);
    const bool has_reason = why.find("does not fit") != std::string::npos ||
                            why.find("choose") != std::string::npos ||
                            why.find("use ") != std::string::npos;
    EXPECT_TRUE(has_reason) << why;
    const auto [beside, sentence] = reason_of(why);
    if (!sentence.empty()) refusals.try_emplace(sentence, beside);
  };
  const Keys role = {{"exchange", GetParam()}};
  const auto& all = values();
  for (auto first = all.begin(); first != all.end(); ++first)
    for (auto second = std::next(first); second != all.end(); ++second)
      for (const std::string& one : first->second)
        for (const std::string& other : second->second)
          try_wiring(role + needs(first->first) + needs(second->first) +
                     Keys{{first->first, one}, {second->first, other}});
  RecordProperty("ran", std::to_string(ran));
  RecordProperty("refused", std::to_string(refused));
  std::cout << GetParam() << ": " << ran << " ran as " << plans.size() << " plans, " << refused
            << " refused\n";
  EXPECT_GE(ran, 20);
  expect_documented(GetParam(), rows_of(GetParam(), ran, refusals));
}

std::vector<std::string> role_names() {
  std::vector<std::string> names;
  for (const RoleType* role : role_types()) names.push_back(role->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Roles, WiringSweep, testing::ValuesIn(role_names()),
                         [](const auto& info) { return info.param; });

TEST(WiringSweepValues, KnowsTwoValuesOfEveryKey) {
  for (const KeyInfo& key : wiring_keys()) {
    if (key.key == "exchange") continue;
    ASSERT_EQ(values().count(key.key), 1U) << key.key;
    EXPECT_GE(values().at(key.key).size(), 2U) << key.key;
  }
}

// A role inside a level, and one around it, with parts that change what a period begins or ends
// with.
const std::vector<Keys>& inside_a_level() {
  static const Keys gossip = {{"exchange", "gossip"}};
  static const Keys aggregate = {{"exchange", "aggregate"}};
  static const std::vector<Keys> all = {
      aggregate,
      aggregate + Keys{{"bucket_bytes", "8"}},
      aggregate + Keys{{"compress", "top-k"}, {"density", "0.5"}},
      aggregate + Keys{{"compress", "int8"}, {"pack", "difference"}, {"local_steps", "2"}},
      aggregate + Keys{{"pack", "model"}, {"local_steps", "2"}},
      aggregate + Keys{{"pack", "difference"},
                       {"outer", "nesterov"},
                       {"outer_momentum", "0.3"},
                       {"local_steps", "2"}},
      gossip,
      gossip + Keys{{"local_steps", "2"}},
      gossip + Keys{{"averaging", "symmetric"}, {"compress", "int8"}},
      gossip + Keys{{"averaging", "symmetric"}, {"tracking", "true"}},
      gossip + Keys{{"averaging", "symmetric"}, {"quasi_global", "0.1"}},
      {{"exchange", "group"}, {"staleness", "1"}}};
  return all;
}

const std::vector<Keys>& around_a_level() {
  static const Keys gossip = {{"exchange", "gossip"}};
  static const Keys aggregate = {{"exchange", "aggregate"}};
  static const Keys partial = {{"exchange", "partial"}};
  static const Keys server = {{"exchange", "server"}};
  static const Keys momentum = {
      {"pack", "difference"}, {"outer", "momentum"}, {"outer_momentum", "0.3"}};
  static const std::vector<Keys> all = {
      aggregate,
      aggregate + Keys{{"overlap", "true"}},
      aggregate + Keys{{"pack", "model"}, {"local_steps", "4"}},
      aggregate + momentum + Keys{{"local_steps", "4"}},
      aggregate + Keys{{"compress", "int8"}},
      gossip,
      gossip + Keys{{"overlap", "true"}, {"staleness", "2"}},
      gossip + Keys{{"overlap", "true"}, {"running_sums", "true"}},
      gossip + Keys{{"averaging", "symmetric"}, {"update", "after"}},
      gossip + Keys{{"averaging", "symmetric"}, {"compress", "int8"}},
      gossip + Keys{{"averaging", "symmetric"}, {"local_steps", "4"}} + momentum,
      partial + Keys{{"activation", "solo"}},
      partial,
      partial + momentum + Keys{{"local_steps", "4"}},
      {{"exchange", "group"}},
      server + Keys{{"rule", "downpour"}, {"servers", "2"}},
      server + Keys{{"rule", "downpour"}, {"overlap", "true"}},
      server + Keys{{"rule", "easgd"}},
      server + Keys{{"rule", "delayed-nesterov"}, {"outer_momentum", "0.3"}}};
  return all;
}

// Any role that begins and ends a period with all of a group may be inside, any role outside.
TEST(LevelSweep, EveryRoleRunsAroundEverySynchronousOne) {
  std::int64_t ran = 0;
  for (const Keys& inside : inside_a_level())
    for (const Keys& around : around_a_level()) {
      Keys keys = {{"level.1.ranks", "2"}};
      for (const auto& [key, value] : inside) keys.emplace_back("level.1." + key, value);
      const auto all = merged(keys + around);
      SCOPED_TRACE(text_of(all));
      Wiring wiring;
      for (const auto& [key, value] : all) ASSERT_TRUE(wiring.set(key, value).ok()) << key;
      expect_conforms(wiring);
      ++ran;
    }
  expect_documented("levels", rows_of("levels", ran, {}));
}

}  // namespace wiring_sweep_test
}  // namespace grapevine
