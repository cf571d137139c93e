#include "net/addresses.hpp"

#include <gtest/gtest.h>

namespace grapevine {
namespace addresses_test {

TEST(Addresses, OfInterfacesByName) {
  const auto loopback = interface_address("lo");
  ASSERT_TRUE(loopback.ok()) << loopback.error().message;
  EXPECT_EQ(*loopback, "127.0.0.1");
  const auto none = interface_address("lo0");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::bad_input);
  EXPECT_NE(none.error().message.find("did you mean 'lo'?"), std::string::npos)
      << none.error().message;
}

TEST(Addresses, DevicesOfThisMachine) {
  for (const char* known : {"", "lo", "all", "lo,lo"})
    EXPECT_TRUE(check_network_devices(known).ok()) << known;
  for (const char* unknown : {"lo0", "lo,lo0", "lo:1", ",lo"}) {
    const auto refused = check_network_devices(unknown);
    ASSERT_FALSE(refused.ok()) << unknown;
    EXPECT_EQ(refused.error().code, Errc::bad_input);
    EXPECT_NE(refused.error().message.find("lo"), std::string::npos) << refused.error().message;
  }
}

TEST(Addresses, TowardsAHost) {
  EXPECT_EQ(own_address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(own_address_towards("no.such.host.invalid"), "");
}

}  // namespace addresses_test
}  // namespace grapevine
