#include "net/addresses.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

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

TEST(Addresses, InNumbersHaveOneForm) {
  const std::vector<std::pair<std::string, std::string>> forms = {
      {"10.0.0.1", "10.0.0.1"},
      {"::ffff:10.0.0.1", "10.0.0.1"},
      {"::FFFF:0a00:0001", "10.0.0.1"},
      {"0:0:0:0:0:ffff:a00:1", "10.0.0.1"},
      {"fd00:0::2", "fd00::2"},
      {"FD00::2", "fd00::2"},
      {"::1", "::1"},
      {"::10.0.0.1", "::10.0.0.1"}};
  for (const auto& [host, form] : forms) EXPECT_EQ(address_in_numbers(host), form) << host;
  for (const char* name : {"", "node1", "localhost", "10.0.0", "10.0.0.1:80", "[::1]", "010.0.0.1",
                           "fe80::1%eth0", "::ffff:10.0.0.256", "10.0.0.1 ", "1"})
    EXPECT_FALSE(address_in_numbers(name)) << name;
}

TEST(Addresses, OfServersHaveAHostAndAPort) {
  const auto address = [](const std::string& text) { return *parse_listen_address("--x", text); };
  EXPECT_EQ(address("0.0.0.0:0").host, "0.0.0.0");
  EXPECT_EQ(address("0.0.0.0:0").port, 0);
  EXPECT_EQ(address("[::1]:80").host, "::1");
  EXPECT_EQ(address("head.example:65535").host, "head.example");
  EXPECT_EQ(address("head.example:65535").port, 65535);
  for (const char* wrong : {"", ":", "80", "h:65536", "h:-1", "h:+1", "h:80x", "host:", ":80",
                            "::1:80", "host:x", "a@h:80", "a b:80", "a/b:80", "[]:x"})
    EXPECT_FALSE(parse_listen_address("--x", wrong).ok()) << wrong;
  const auto refused = parse_listen_address("--x", "h:0", 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::bad_input);
  EXPECT_EQ(refused.error().message, "--x 'h:0': expected HOST:PORT, with a port from 1 to 65535");
  EXPECT_EQ(parse_listen_address("--x", "::1:80", 1).error().message,
            "--x '::1:80': expected [ADDRESS]:PORT, as of IPv6, with a port from 1 to 65535");
}

TEST(Addresses, WithNamesArePortsOfThisMachineUnlessTheySayMore) {
  const auto address = [](const std::string& text) { return *parse_named_address("--x", text); };
  EXPECT_EQ(address("9400").host, "127.0.0.1");
  EXPECT_EQ(address("9400").port, 9400);
  EXPECT_EQ(address("9400").name, "");
  EXPECT_EQ(address("[::1]:80").host, "::1");
  EXPECT_EQ(address("train.example@0.0.0.0:9400").name, "train.example");
  EXPECT_EQ(address("train.example@0.0.0.0:9400").host, "0.0.0.0");
  EXPECT_EQ(address("train.example@9400").host, "127.0.0.1");
  for (const char* wrong : {"", ":", "65536", "-1", "a", "80x", "host:", ":80", "::1:80", "host:x",
                            "@0.0.0.0:80", "a@b@0.0.0.0:80", "a/b@0.0.0.0:80", "a:1@0.0.0.0:80"})
    EXPECT_FALSE(parse_named_address("--x", wrong).ok()) << wrong;
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
