#include "actors/run/supervision/wiring/wiring_change.hpp"

#include <gtest/gtest.h>

namespace grapevine {
namespace wiring_change_test {

using Next = WiringChange::Next;

const LiveSettings kAll = {{"algorithm", "sgp"}, {"lr", "0.1"}}, kNew = {{"algorithm", "sgp"}};

WiringChange agreed() {
  WiringChange change;
  change.ask(kAll, kNew, {0, 2});
  EXPECT_EQ(change.add(SettingsChecked{1, 0, ""}), Next::wait);
  EXPECT_EQ(change.add(SettingsChecked{1, 2, ""}), Next::begin);
  return change;
}

TEST(WiringChange, BeginsOnceEveryRankHasAgreed) {
  WiringChange change;
  EXPECT_FALSE(change.in_progress());
  change.ask(kAll, kNew, {0, 2, 3});
  EXPECT_TRUE(change.asks());
  EXPECT_EQ(change.add(SettingsChecked{1, 2, ""}), Next::wait);
  EXPECT_EQ(change.add(SettingsChecked{1, 2, ""}), Next::wait) << "twice";
  EXPECT_EQ(change.add(SettingsChecked{0, 3, ""}), Next::wait) << "of another change";
  EXPECT_EQ(change.missing(), (std::set<Rank>{0, 3}));
  EXPECT_EQ(change.add(SettingsChecked{1, 0, ""}), Next::wait);
  EXPECT_EQ(change.add(SettingsChecked{1, 3, ""}), Next::begin);
  EXPECT_FALSE(change.asks());
  EXPECT_TRUE(change.in_progress());
}

TEST(WiringChange, EndsWithTheFirstRefusal) {
  WiringChange change;
  change.ask(kAll, kNew, {0, 1});
  EXPECT_EQ(change.add(SettingsChecked{1, 1, "no"}), Next::refuse);
  EXPECT_EQ(change.why(), "no");
  EXPECT_FALSE(change.in_progress());
  EXPECT_EQ(change.add(SettingsChecked{1, 0, ""}), Next::wait) << "too late";
  change.ask(kAll, kNew, {0});
  EXPECT_EQ(change.number(), 2);
}

TEST(WiringChange, MergesOnceNoRankIsBehindAndBeginsOnceAllHaveMerged) {
  WiringChange change = agreed();
  EXPECT_EQ(change.install(true, {0, 2}), ViewKind::members);
  EXPECT_EQ(change.install(false, {0, 2}), ViewKind::common_model);
  EXPECT_FALSE(change.add(ModelShared{7, 0}, 8)) << "of an earlier view";
  EXPECT_FALSE(change.add(ModelShared{8, 0}, 8));
  EXPECT_FALSE(change.add(ModelShared{8, 0}, 8)) << "twice";
  EXPECT_TRUE(change.add(ModelShared{8, 2}, 8));
  EXPECT_EQ(change.install(false, {0, 2}), ViewKind::new_wiring);
  EXPECT_FALSE(change.in_progress());
  EXPECT_EQ(change.install(false, {0, 2}), ViewKind::members);
}

// A member is lost: the others do it again, also where one of them is behind.
TEST(WiringChange, MergesAgainAmongOthers) {
  WiringChange change = agreed();
  EXPECT_EQ(change.install(false, {0, 2}), ViewKind::common_model);
  EXPECT_FALSE(change.add(ModelShared{3, 0}, 3));
  EXPECT_EQ(change.install(true, {0}), ViewKind::common_model);
  EXPECT_TRUE(change.add(ModelShared{4, 0}, 4));
  EXPECT_EQ(change.install(true, {0}), ViewKind::new_wiring);
}

}  // namespace wiring_change_test
}  // namespace grapevine
