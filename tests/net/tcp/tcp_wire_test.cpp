// What one broken thing inside costs: its connection or, at the worst, the transport; never a hang.
#include "net/tcp/tcp_wire.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {
namespace tcp_wire_test {

// The event loop meets a broken invariant: local ranks hear that all others are lost, and the end
// of the wire is not waited for in vain.
TEST(TcpWire, AnErrorOnTheEventLoopLosesTheOthersAndEnds) {
  auto router = std::make_shared<RankRouter>(one_each(0, 3));
  auto inbox = std::make_shared<RecordingInbox>(nullptr);
  auto made = tcp::Wire::listen(loopback());
  ASSERT_TRUE(made.ok());
  std::unique_ptr<tcp::Wire> wire = std::move(*made);
  wire->start(router, {"this one", "process 1", "process 2"}, kJob);
  ASSERT_TRUE(router->attach(0, inbox).ok());
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const FileDescriptor other(ends[1]);
  wire->adopt(tcp::make_plain_stream(FileDescriptor(ends[0])), 99);  // there is no such process
  EXPECT_TRUE(inbox->wait_down(1));
  EXPECT_TRUE(inbox->wait_down(2));
  const auto waited = wire->wait_connected(tcp::Clock::now() + kTimeout, "", nullptr);
  EXPECT_FALSE(waited.ok());
  router->detach(0);  // its departure is outgoing
  wire->send();
  wire.reset();
}

}  // namespace tcp_wire_test
}  // namespace grapevine::conformance
