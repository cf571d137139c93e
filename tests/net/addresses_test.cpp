#include "net/addresses.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

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

int bind_error(std::uint16_t port, bool reuse) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  return ::bind(socket.get(), generic, sizeof address) == 0 ? 0 : errno;
}

TEST(Addresses, AReservedPortIsKeptForItsUser) {
  auto port = reserve_tcp_port();
  ASSERT_TRUE(port.ok()) << port.error().message;
  EXPECT_EQ(bind_error(port->number, false), EADDRINUSE);  // as for a caller without the option
  EXPECT_EQ(bind_error(port->number, true), 0);
  EXPECT_TRUE(can_listen("127.0.0.1", port->number).ok());
  const auto other = reserve_tcp_port();
  ASSERT_TRUE(other.ok());
  EXPECT_NE(other->number, port->number);
  port->holder.reset();
  EXPECT_EQ(bind_error(port->number, false), 0);
}

}  // namespace addresses_test
}  // namespace grapevine
