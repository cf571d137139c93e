// Actors that are published with TLS: they are reached with a certificate of the same CA alone, and
// no connection has an effect on the others.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "messages/random.hpp"
#include "net/addresses.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_certificates.hpp"
#include "tests/net/tcp/tls/expired_context.hpp"

namespace grapevine {
namespace published_actor_test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Context = std::shared_ptr<const tcp::TlsContext>;

constexpr auto kDeadline = 60s;  // only a hang reaches it
using Echo = caf::typed_actor<caf::replies_to<std::string>::with<std::string>>;

Echo::behavior_type echo() {
  return {[](std::string& text) { return std::move(text); }};
}

// `hosts`: that the certificate names; with any, names are compared.
Context issued(const tcp::Authority& authority, const std::vector<std::string>& hosts = {}) {
  std::string name = (fs::temp_directory_path() / "published-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  EXPECT_TRUE(authority.issue(name, tcp::kCertificateTerm, hosts).ok());
  const auto loaded = tcp::TlsContext::load(name);
  fs::remove_all(name);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? *loaded : nullptr;
}

// A process of its own, as far as actors can be.
struct Side {
  explicit Side(Context context) : tls(std::move(context)) {
    config.load<caf::io::middleman>();
    system = std::make_unique<caf::actor_system>(config);
  }

  Expected<Echo> find(std::uint16_t port, Duration timeout = kDeadline,
                      const std::string& host = "127.0.0.1") {
    DialConfig to{"it", host, port, timeout, nullptr};
    to.tls = tls;
    return dial<Echo>(*system, to);
  }
  // What the actor answers; empty: nothing.
  std::string ask(const Echo& actor, const std::string& text) {
    caf::scoped_actor self{*system};
    std::string answer;
    self->request(actor, kDeadline, text)
        .receive([&](std::string& echoed) { answer = std::move(echoed); },
                 [&](const caf::error& error) { ADD_FAILURE() << system->render(error); });
    return answer;
  }

  const Context tls;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
};

class PublishedActor : public testing::Test {
 protected:
  PublishedActor() {
    actor_ = here_.system->spawn(echo);
    const auto port = publish_actor(*here_.system, actor_, {"127.0.0.1", 0, here_.tls});
    EXPECT_TRUE(port.ok()) << (port.ok() ? "" : port.error().message);
    if (port) port_ = *port;
    auto found = there_.find(port_);
    EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
    if (found) proxy_ = *found;
  }
  ~PublishedActor() override {
    proxy_ = Echo{};
    caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
    actor_ = Echo{};
  }

  FileDescriptor connected() const {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return socket;
  }
  // The connection that exists, and a new one.
  void expect_unharmed() {
    EXPECT_EQ(there_.ask(proxy_, "still there"), "still there");
    Side another(authority_context_);
    auto found = another.find(port_);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(another.ask(*found, "new"), "new");
    *found = Echo{};
  }

  const tcp::Authority authority_;
  const Context authority_context_ = issued(authority_);
  Side here_{authority_context_}, there_{issued(authority_)};
  Echo actor_, proxy_;
  std::uint16_t port_ = 0;
};

// Small, larger than a TLS record, and larger than the buffers of the sockets.
TEST_F(PublishedActor, EveryMessageArrivesAsItWasSent) {
  Rng rng(4);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{16384},
                                 std::size_t{60'000}, std::size_t{30'000'000}}) {
    std::string text(size, ' ');
    for (char& c : text) c = static_cast<char>(rng());
    EXPECT_TRUE(there_.ask(proxy_, text) == text) << size << " bytes, seed 4";
  }
}

TEST_F(PublishedActor, ManyMessagesAtOnceKeepTheirOrder) {
  constexpr int kMessages = 2000;
  caf::scoped_actor self{*there_.system};
  for (int i = 0; i < kMessages; ++i) self->send(proxy_, std::to_string(i) + std::string(500, '.'));
  for (int i = 0; i < kMessages; ++i) {
    std::string text;
    self->receive([&](std::string& echoed) { text = std::move(echoed); },
                  caf::after(kDeadline) >> [&] { ADD_FAILURE() << "message " << i; });
    ASSERT_EQ(text.substr(0, text.find('.')), std::to_string(i));
  }
}

TEST_F(PublishedActor, TheEndOfAProcessIsSeen) {
  auto other = std::make_unique<Side>(authority_context_);
  auto far = other->system->spawn(echo);
  const auto port = publish_actor(*other->system, far, {"127.0.0.1", 0, other->tls});
  ASSERT_TRUE(port.ok());
  auto found = there_.find(*port);
  ASSERT_TRUE(found.ok()) << found.error().message;
  caf::scoped_actor self{*there_.system};
  self->monitor(*found);
  caf::anon_send_exit(far, caf::exit_reason::user_shutdown);
  far = Echo{};
  other.reset();
  bool down = false;
  self->receive([&](const caf::down_msg&) { down = true; }, caf::after(kDeadline) >> [] {});
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
    const auto port = publish_actor(*listens.system, actor, {own, 0, listens.tls});
    ASSERT_TRUE(port.ok()) << port.error().message;
    auto found = dials.find(*port, kDeadline, own);
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
  const Echo actor = plain.system->spawn(echo);
  const auto port = publish_actor(*plain.system, actor, {"127.0.0.1", 0, nullptr});
  ASSERT_TRUE(port.ok());
  const auto found = there_.find(*port);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, Errc::protocol);
  EXPECT_NE(found.error().message.find("does not speak TLS"), std::string::npos)
      << found.error().message;
  caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
}

TEST_F(PublishedActor, AnAddressInUseIsAnError) {
  const Echo second = here_.system->spawn(echo);
  const auto port = publish_actor(*here_.system, second, {"127.0.0.1", port_, here_.tls});
  ASSERT_FALSE(port.ok());
  EXPECT_EQ(port.error().code, Errc::io);
  caf::anon_send_exit(second, caf::exit_reason::user_shutdown);
}

}  // namespace published_actor_test
}  // namespace grapevine
