// [[wiring.level]]: from the text of a file to a plan, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "algorithms/wiring/wiring.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace wiring_levels_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

constexpr char kThree[] = R"([[wiring.level]]
ranks = 'node'
exchange = 'aggregate'

[[wiring.level]]
ranks = 8
exchange = 'gossip'
local_steps = 2

[[wiring.level]]
exchange = 'aggregate'
pack = 'difference'
local_steps = 8
outer = 'nesterov'
)";

TEST(WiringLevels, AreReadFromTheInsideOut) {
  const auto wiring = Wiring::parse_toml(kThree, "job.toml");
  ASSERT_TRUE(wiring.ok()) << wiring.error().message;
  EXPECT_THAT(
      wiring->keys(),
      ElementsAre(Pair("exchange", "aggregate"), Pair("level.1.exchange", "aggregate"),
                  Pair("level.1.ranks", "node"), Pair("level.2.exchange", "gossip"),
                  Pair("level.2.local_steps", "2"), Pair("level.2.ranks", "8"),
                  Pair("local_steps", "8"), Pair("outer", "nesterov"), Pair("pack", "difference")));
  EXPECT_EQ(wiring->to_toml(), kThree);
}

// What is resolved is the same wiring when it is read again.
TEST(WiringLevels, AreTheSameWhenTheyAreReadAgain) {
  auto wiring = Wiring::parse_toml(kThree, "job.toml");
  ASSERT_TRUE(wiring.ok());
  ASSERT_TRUE(wiring->set("level.1.ranks", "4").ok());
  const auto resolved = resolve_keys(*wiring);
  ASSERT_TRUE(resolved.ok()) << resolved.error().message;
  std::string text;
  for (const WiringTable& table : wiring_tables(resolved->keys)) {
    text += table.header + "\n";
    for (const ResolvedKey& key : table.keys)
      if (!key.value.empty()) text += toml_line(key.key, key.value) + "\n";
  }
  const auto again = Wiring::parse_toml(text, "again");
  ASSERT_TRUE(again.ok()) << again.error().message << "\n" << text;
  const auto keys = resolve_keys(*again);
  ASSERT_TRUE(keys.ok()) << keys.error().message << "\n" << text;
  ASSERT_EQ(keys->keys.size(), resolved->keys.size());
  for (std::size_t i = 0; i < keys->keys.size(); ++i) {
    EXPECT_EQ(keys->keys[i].key, resolved->keys[i].key);
    EXPECT_EQ(keys->keys[i].value, resolved->keys[i].value) << keys->keys[i].key;
  }
}

// Where every table has ranks, the keys of the preset are those of the outermost level.
TEST(WiringLevels, GoInsideAPreset) {
  const auto own = Wiring::parse_toml("[[wiring.level]]\nranks = 2\nexchange = 'aggregate'\n", "f");
  ASSERT_TRUE(own.ok());
  const Wiring wiring = on_top_of(find_preset("diloco")->wiring, *own);
  const auto plan = resolve(wiring);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->hierarchy, 2);
  EXPECT_EQ(plan->local.steps.by_epoch.at(0), 50);
}

TEST(WiringLevels, ErrorsNameThePlace) {
  const auto error_of = [](const std::string& text) {
    const auto wiring = Wiring::parse_toml(text, "job.toml");
    if (!wiring) return wiring.error().message;
    const auto plan = resolve(*wiring);
    return plan.ok() ? std::string("accepted") : plan.error().message;
  };
  EXPECT_THAT(error_of("[wiring]\npeers = 2\n[[wiring.level]]\nranks = 2\n[[wiring.level]]\n"
                       "exchange = 'gossip'\n"),
              AllOf(HasSubstr("job.toml:5"), HasSubstr("one of the two")));
  EXPECT_THAT(error_of("[wiring]\nlevel = 3\n"), HasSubstr("give each level a table"));
  EXPECT_THAT(error_of("[wiring.level]\nranks = 3\n"), HasSubstr("give each level a table"));
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 2\nexchnge = 'gossip'\n"),
              AllOf(HasSubstr("job.toml:3"), HasSubstr("exchange")));
  EXPECT_THAT(error_of("[[wiring.level]]\nexchange = 'gossip'\n"), HasSubstr("has no `ranks`"));
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 2\n[[wiring.level]]\n"),
              AllOf(HasSubstr("job.toml:3"), HasSubstr("without keys")));
  EXPECT_THAT(error_of("[[wiring.level]]\nexchange = 'aggregate'\n[[wiring.level]]\n"
                       "exchange = 'gossip'\n"),
              AllOf(HasSubstr("job.toml:1"), HasSubstr("has no `ranks`")));
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 2\nexchange = 'agregate'\n"),
              HasSubstr("wiring.level.1.exchange"));
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 2\n[[wiring.level]]\nlevel = 5\n"),
              HasSubstr("level"));
  EXPECT_FALSE(Wiring().set("level.01.ranks", "2").ok());
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 0\n"), HasSubstr("wiring.level.1.ranks"));
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 'many'\n"), HasSubstr("neither a whole number"));
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 2\nquorum = 3\n"),
              HasSubstr("wiring.level.1.quorum"));
  EXPECT_THAT(error_of("[[wiring.level]]\nranks = 2\n[[wiring.level]]\nranks = 4\n"
                       "exchange = 'gossip'\nquasi_global = 0.5\n"),
              AllOf(HasSubstr("wiring.level.2.quasi_global"), HasSubstr("level 1")));
}

// The wiring that a job file states: all keys that were resolved.
Wiring stated(const std::vector<ResolvedKey>& keys) {
  Wiring wiring;
  for (const ResolvedKey& key : keys)
    if (!key.value.empty()) {
      EXPECT_TRUE(wiring.set(key.key, key.value).ok()) << key.key;
    }
  return wiring;
}

// Where a level has no pace of its own, what is resolved states that of the level inside, so that
// it is the same plan when it is read again.
TEST(WiringLevels, StateThePaceThatTheyInherit) {
  for (const std::string text :
       {"[[wiring.level]]\nranks = 2\npack = 'model'\nlocal_steps = 3\n[[wiring.level]]\nranks = "
        "4\n"
        "[[wiring.level]]\nexchange = 'gossip'\n",
        "[[wiring.level]]\nranks = 2\npack = 'model'\nqsr = 0.2\n[[wiring.level]]\n"
        "exchange = 'gossip'\n"}) {
    const auto wiring = Wiring::parse_toml(text, "job.toml");
    ASSERT_TRUE(wiring.ok()) << wiring.error().message;
    const auto first = resolve_keys(*wiring);
    ASSERT_TRUE(first.ok()) << first.error().message;
    const auto second = resolve(stated(first->keys));
    ASSERT_TRUE(second.ok()) << second.error().message;
    const LocalSteps &one = first->plan.local.steps, &other = second->local.steps;
    EXPECT_EQ(one.by_epoch.to_string(), other.by_epoch.to_string()) << text;
    EXPECT_EQ(one.alpha, other.alpha) << text;
  }
}

// A preset's keys serve its own role and parts: beside others they are left out, not refused. What
// the user sets is never left out.
// A role around levels takes one step for each exchange: a tracked gradient is that of a period.
// The job file of such a run states the pace, and is read again.
TEST(WiringLevels, TrackedGradientsAreThoseOfPeriods) {
  const auto wiring = Wiring::parse_toml(R"([[wiring.level]]
ranks = 2
exchange = 'gossip'
local_steps = 4

[[wiring.level]]
exchange = 'gossip'
update = 'before'
averaging = 'symmetric'
topology = 'ring'
tracking = true
)",
                                         "job.toml");
  ASSERT_TRUE(wiring.ok()) << wiring.error().message;
  const auto first = resolve_keys(*wiring);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const Wiring again = stated(first->keys);
  const auto second = resolve(again);
  EXPECT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(again.keys().at("local_steps"), "4");
}

TEST(WiringOnTopOfAPreset, LeavesOutWhatCountsForNothing) {
  Wiring own;
  ASSERT_TRUE(own.set("rule", "delayed-nesterov").ok());
  const Wiring easgd = on_top_of(find_preset("easgd")->wiring, own);
  EXPECT_EQ(easgd.keys().count("elasticity"), 0U);
  EXPECT_EQ(easgd.keys().at("local_steps"), "4");
  EXPECT_TRUE(resolve(easgd).ok());
  Wiring nested = find_preset("sgp")->wiring;
  ASSERT_TRUE(nested.set("level.1.ranks", "2").ok());
  ASSERT_TRUE(nested.set("level.1.exchange", "aggregate").ok());
  EXPECT_EQ(on_top_of(nested, Wiring()).keys(), nested.keys());
  ASSERT_TRUE(own.set("elasticity", "0.5").ok());
  EXPECT_FALSE(resolve(on_top_of(find_preset("easgd")->wiring, own)).ok());
}

}  // namespace wiring_levels_test
}  // namespace grapevine
