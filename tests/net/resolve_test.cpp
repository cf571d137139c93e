// Names and addresses: what is found, what is said where nothing is, and that no wait lasts.
#include "net/resolve.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <future>
#include <memory>

#include "net/addresses.hpp"

namespace grapevine {
namespace resolve_test {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

TEST(Resolve, NumericAddressesAskNobody) {
  for (const std::string host : {"127.0.0.1", "192.0.2.7", "::1"}) {
    const auto found = resolve(host, "80", Clock::now() - 1s);
    ASSERT_TRUE(found.ok()) << host << found.error().message;
    EXPECT_EQ(numeric_host(found->front()), host);
  }
}

TEST(Resolve, SaysWhatTheSystemSays) {
  const auto found = resolve("no.such.host.invalid", "80", Clock::now() + 60s);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::io) << found.error().message;
}

TEST(Resolve, WaitsNoLongerThanItIsTold) {
  // A name service that answers when this test lets it.
  const auto answer = std::make_shared<std::promise<void>>();
  const auto ask = [heard = answer->get_future().share()]() -> Addresses {
    heard.wait();
    return Error{Errc::io, "too late"};
  };
  const auto late = answer_within(ask, Clock::now() + 10ms, {});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Errc::timeout);
  EXPECT_EQ(late.error().message, "the name service does not answer");
  const auto cancelled = answer_within(ask, Clock::now() + 1h, [] { return true; });
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().message, "asked to stop");
  answer->set_value();
  EXPECT_EQ(answer_within(ask, Clock::now() + 1h, {}).error().message, "too late");
}

TEST(ListeningAddress, IsTheOneThatOthersUse) {
  EXPECT_EQ(listening_address("127.0.0.1", true), "127.0.0.1");
  EXPECT_EQ(listening_address("127.0.0.1", false), "127.0.0.1") << "said so itself";
  EXPECT_TRUE(is_loopback_host(listening_address("localhost", false)));
  EXPECT_EQ(listening_address("192.0.2.1", true), "") << "no address of any machine";
  EXPECT_EQ(listening_address("no.such.host.invalid", true), "");
  const std::string own = own_address_towards("192.0.2.1");
  if (!own.empty()) {
    EXPECT_EQ(listening_address(own, false), own);
  }
  // A name of this machine that stands for loopback here stands for something else elsewhere.
  EXPECT_FALSE(is_loopback_host(listening_address(machine_name(), false)) &&
               machine_name() != "localhost");
}

TEST(ListeningAddress, OfANameWithSeveralAddressesIsNone) {
  EXPECT_EQ(chosen_address({"10.0.0.1"}, {}, false), "10.0.0.1");
  EXPECT_EQ(chosen_address({"10.0.0.1"}, {"127.0.1.1"}, false), "10.0.0.1");
  EXPECT_EQ(chosen_address({"10.0.0.1"}, {"127.0.1.1"}, true), "127.0.1.1")
      << "nobody else connects";
  EXPECT_EQ(chosen_address({"10.0.0.1", "2001:db8::1"}, {}, false), "");
  EXPECT_EQ(chosen_address({}, {"127.0.1.1"}, false), "") << "others do not mean their own machine";
}

TEST(ListeningAddress, AFreePortIsFreeAndATakenOneIsInUse) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  const std::uint16_t port = ntohs(address.sin_port);
  for (const std::string host : {"127.0.0.1", ""}) {
    const auto taken = can_listen(host, port);
    ASSERT_FALSE(taken.ok()) << host;
    EXPECT_EQ(taken.error().message, "Address already in use");
  }
  ::close(listener);
  EXPECT_TRUE(can_listen("127.0.0.1", port).ok());
  EXPECT_FALSE(can_listen("192.0.2.1", 0).ok());
}

}  // namespace resolve_test
}  // namespace grapevine
