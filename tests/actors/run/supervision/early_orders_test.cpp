// What is ordered before a run begins: the orders of programs that are none of the run take no room
// of its own.
#include "actors/run/supervision/early_orders.hpp"

#include <gtest/gtest.h>

#include <string>

#include <caf/all.hpp>

namespace grapevine {
namespace early_orders_test {

using Kind = EarlyOrders::Kind;

class EarlyOrdersTest : public testing::Test {
 protected:
  EarlyOrdersTest() : system_(config_), unknown_(system_), member_(system_) {}

  static caf::node_id process(std::uint32_t number) {
    return *caf::make_node_id(number, "0123456789012345678901234567890123456789");
  }
  bool add(Kind kind, std::uint32_t number, const caf::scoped_actor& sender,
           const std::string& name) {
    return orders_.add(kind, process(number), sender->address(),
                       [this, name] { done_ += name + " "; });
  }
  // The orders of the member.
  std::string obey() {
    done_.clear();
    for (const auto& order :
         orders_.take([this](const caf::actor_addr& actor) { return actor == member_->address(); }))
      order();
    return done_;
  }

  caf::actor_system_config config_;
  caf::actor_system system_;
  caf::scoped_actor unknown_, member_;  // unknown: none of the run's
  EarlyOrders orders_;
  std::string done_;
};

TEST_F(EarlyOrdersTest, OfOneKindTakeNoRoomOfAnother) {
  for (const Kind flood : {Kind::stop, Kind::failure}) {
    for (std::uint32_t i = 0; i < EarlyOrders::kMost; ++i)
      EXPECT_TRUE(add(flood, 100 + i, unknown_, "flood"));
    EXPECT_FALSE(add(flood, 1, member_, "late")) << "the room is bounded";
    EXPECT_TRUE(add(flood, 100, unknown_, "again")) << "that process has its place";
    EXPECT_TRUE(add(flood == Kind::stop ? Kind::failure : Kind::stop, 1, member_, "own"));
    EXPECT_EQ(obey(), "own ");
  }
}

TEST_F(EarlyOrdersTest, OfOneProcessTakeOnePlace) {
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(add(Kind::stop, 100, unknown_, "flood"));
  EXPECT_TRUE(add(Kind::stop, 1, member_, "stop"));
  EXPECT_TRUE(add(Kind::failure, 1, member_, "failure"));
  EXPECT_EQ(obey(), "failure stop ");
  EXPECT_EQ(obey(), "") << "each order counts once";
}

}  // namespace early_orders_test
}  // namespace grapevine
