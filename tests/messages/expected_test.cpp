#include "messages/expected.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace grapevine {
namespace expected_test {

Expected<int> half(int n) {
  if (n % 2 != 0) return bad_input("odd");
  return n / 2;
}

TEST(Expected, HoldsAValueOrAnError) {
  EXPECT_EQ(*half(8), 4);
  ASSERT_FALSE(half(7));
  EXPECT_EQ(half(7).error().code, Errc::bad_input);
  EXPECT_EQ(half(7).error().message, "odd");
}

TEST(Expected, AValueThatIsNotThereBreaksAnInvariantAndSaysWhy) {
  try {
    half(7).value();
    FAIL() << "value() of an error";
  } catch (const InvariantBroken& broken) {
    EXPECT_NE(std::string(broken.what()).find("odd"), std::string::npos);
  }
}

TEST(Expected, MovesItsValueOut) {
  Expected<std::unique_ptr<int>> owner(std::make_unique<int>(3));
  const std::unique_ptr<int> mine = *std::move(owner);
  EXPECT_EQ(*mine, 3);
}

TEST(Expected, OfNothing) {
  EXPECT_TRUE(Expected<void>().ok());
  const Expected<void> failed(Error{Errc::io, "disk full"});
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "disk full");
}

TEST(Check, NamesFileConditionAndMessage) {
  EXPECT_NO_THROW(GRAPEVINE_CHECK(1 + 1 == 2));
  try {
    GRAPEVINE_CHECK(1 + 1 == 3, "sum of ", 1, " and ", 1);
    FAIL() << "the check let it pass";
  } catch (const InvariantBroken& broken) {
    const std::string what = broken.what();
    EXPECT_NE(what.find("expected_test.cpp:"), std::string::npos);
    EXPECT_NE(what.find("1 + 1 == 3: sum of 1 and 1"), std::string::npos);
  }
}

}  // namespace expected_test
}  // namespace grapevine
