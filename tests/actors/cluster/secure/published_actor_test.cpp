// Actors that are published with TLS: they are reached with a certificate of the same CA alone, and
// no connection has an effect on the others.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/secure/publish.hpp"
#include "messages/random.hpp"
#include "net/addresses.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "tests/actors/cluster/secure/published_echo.hpp"
#include "tests/net/tcp/tls/expired_context.hpp"

namespace grapevine {
namespace published_actor_test {

using namespace std::chrono_literals;
using published_echo::echo;
using published_echo::Echo;
using published_echo::issued;
using published_echo::kEchoDeadline;
using published_echo::PublishedEcho;
using published_echo::Side;
using published_echo::WithAuthority;

class PublishedActor : protected WithAuthority, public PublishedEcho {
 protected:
  PublishedActor() : PublishedEcho(authority_context_, issued(authority_)) {}
};

TEST_F(PublishedActor, EveryMessageArrivesAsItWasSent) { expect_messages_as_sent(); }

TEST_F(PublishedActor, ManyMessagesAtOnceKeepTheirOrder) {
  constexpr int kMessages = 2000;
  caf::scoped_actor self{*there_.system};
  for (int i = 0; i < kMessages; ++i) self->send(proxy_, std::to_string(i) + std::string(500, '.'));
  for (int i = 0; i < kMessages; ++i) {
    std::string text;
    self->receive([&](std::string& echoed) { text = std::move(echoed); },
                  caf::after(kEchoDeadline) >> [&] { ADD_FAILURE() << "message " << i; });
    ASSERT_EQ(text.substr(0, text.find('.')), std::to_string(i));
  }
}

TEST_F(PublishedActor, TheEndOfAProcessIsSeen) {
  auto other = std::make_unique<Side>(authority_context_);
  auto far = other->system->spawn(echo);
  const auto port = publish_actor(*other->system, far, {"127.0.0.1", 0, other->credentials});
  ASSERT_TRUE(port.ok());
  auto found = there_.find(*port);
  ASSERT_TRUE(found.ok()) << found.error().message;
  caf::scoped_actor self{*there_.system};
  self->monitor(*found);
  caf::anon_send_exit(far, caf::exit_reason::user_shutdown);
  far = Echo{};
  other.reset();
  bool down = false;
  self->receive([&](const caf::down_msg&) { down = true; }, caf::after(kEchoDeadline) >> [] {});
  EXPECT_TRUE(down);
}

// Of CAF's own OpenSSL module the first such connection ended all the others.
TEST_F(PublishedActor, OtherBytesThanTlsEndTheirConnectionOnly) {
  Rng rng(5);
  for (int i = 0; i < 20; ++i) {
    const FileDescriptor socket = connected();
    std::string bytes = i % 2 == 0 ? "GET / HTTP/1.0\r\n\r\n" : std::string(3000, ' ');
    if (i % 2 == 1)
      for (char& c : bytes) c = static_cast<char>(rng());
    EXPECT_GT(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    char answer = 0;
    while (::recv(socket.get(), &answer, 1, 0) > 0) continue;  // an alert, and the end
    EXPECT_EQ(there_.ask(proxy_, "x"), "x");
  }
  expect_unharmed();
}

// Its thread waits for it without using a core, as that of CAF's module does.
TEST_F(PublishedActor, SilentConnectionsCostNothing) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connected());
  const auto used = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  };
  const double before = used();
  std::this_thread::sleep_for(2s);
  EXPECT_LT(used() - before, 1.5) << "of CPU in 2 s: a thread does not sleep";
  expect_unharmed();
}

TEST_F(PublishedActor, AnotherAuthorityIsRefusedOnBothSides) {
  Side other(issued(tcp::Authority()));
  const auto found = other.find(port_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::protocol);  // no second attempt
  EXPECT_NE(found.error().message.find("certificate"), std::string::npos) << found.error().message;
  expect_unharmed();
}

TEST_F(PublishedActor, ACertificateThatExpiredSinceItWasReadIsRefused) {
  Side late(expired_context(authority_));
  const auto found = late.find(port_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::protocol);
  EXPECT_NE(found.error().message.find("expired"), std::string::npos) << found.error().message;
  expect_unharmed();
}

// Names are compared on the connections of CAF, as on those of the transport.
TEST_F(PublishedActor, ACertificateOfAnotherHostIsRefused) {
  const std::string own = tcp::primary_address(false);
  if (is_loopback_host(own)) GTEST_SKIP() << "this machine has loopback addresses alone";
  struct Case {
    std::vector<std::string> named;  // in the certificate of the process that listens
    bool accepted;
  };
  for (const Case& c : std::vector<Case>{{{own}, true},
                                         {{"::ffff:" + own}, true},
                                         {{"node2", "192.0.2.1"}, false},
                                         {{own + ".lan"}, false}}) {
    SCOPED_TRACE(c.named.front());
    Side listens(issued(authority_, c.named)), dials(issued(authority_, {"node1"}));
    const Echo actor = listens.system->spawn(echo);
    const auto port = publish_actor(*listens.system, actor, {own, 0, listens.credentials});
    ASSERT_TRUE(port.ok()) << port.error().message;
    auto found = dials.find(*port, kEchoDeadline, own);
    EXPECT_EQ(found.ok(), c.accepted);
    if (found) {
      EXPECT_EQ(dials.ask(*found, "names"), "names");
      *found = Echo{};
    } else {
      EXPECT_EQ(found.error().code, Errc::protocol);  // no second attempt
      EXPECT_NE(found.error().message.find("not for " + own), std::string::npos)
          << found.error().message;
    }
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
}

TEST_F(PublishedActor, AProcessWithoutTlsIsToldSo) {
  Side plain(nullptr);
  const auto found = plain.find(port_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::protocol);
  EXPECT_NE(found.error().message.find("it uses TLS"), std::string::npos) << found.error().message;
  expect_unharmed();
}

TEST_F(PublishedActor, AProcessWithTlsIsToldThatTheOtherHasNone) {
  Side plain(nullptr);
  expect_refused_by(plain, "does not speak TLS");
}

TEST_F(PublishedActor, AnAddressInUseIsAnError) {
  const Echo second = here_.system->spawn(echo);
  const auto port = publish_actor(*here_.system, second, {"127.0.0.1", port_, here_.credentials});
  ASSERT_FALSE(port.ok());
  EXPECT_EQ(port.error().code, Errc::io);
  caf::anon_send_exit(second, caf::exit_reason::user_shutdown);
}

}  // namespace published_actor_test
}  // namespace grapevine
