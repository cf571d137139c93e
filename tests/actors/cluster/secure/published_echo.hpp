// An actor that one process publishes and another one has found, with credentials or without.
#pragma once
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "messages/random.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_certificates.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "tests/log_lines.hpp"

namespace grapevine::published_echo {

using CredentialsPtr = std::shared_ptr<const tcp::Credentials>;

inline constexpr auto kEchoDeadline = std::chrono::seconds(60);  // only a hang reaches it

// `hosts`: that the certificate names; with any, names are compared.
inline CredentialsPtr issued(const tcp::Authority& authority,
                             const std::vector<std::string>& hosts = {}) {
  std::string name = (std::filesystem::temp_directory_path() / "published-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  EXPECT_TRUE(authority.issue(name, tcp::kCertificateTerm, hosts).ok());
  const auto loaded = tcp::TlsContext::load(name);
  std::filesystem::remove_all(name);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? *loaded : nullptr;
}

class WithAuthority {
 protected:
  const tcp::Authority authority_;
  const CredentialsPtr authority_context_ = issued(authority_);
};

// False after the deadline.
template <class Condition>
bool wait_until(const Condition& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kEchoDeadline;
  while (!holds() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return holds();
}

class WithLog {
 protected:
  const LogLines log_;  // of a class that is listed first: it outlives the actors
};

// For ports with room for two silent connections, whose silence may last.
inline const SilentConnections::Limits kCrowded{2, std::chrono::hours(1)};
// Silence ends soon.
inline const SilentConnections::Limits kImpatient{256, std::chrono::milliseconds(50)};
// No connection is silent for too long.
inline const SilentConnections::Limits kPatient{256, std::chrono::hours(1)};

using Echo = caf::typed_actor<caf::replies_to<std::string>::with<std::string>>;

inline Echo::behavior_type echo() {
  return {[](std::string& text) { return std::move(text); }};
}

// A process of its own, as far as actors can be. Null: without credentials.
struct Side {
  explicit Side(CredentialsPtr own = nullptr) : credentials(std::move(own)) {
    config.load<caf::io::middleman>();
    system = std::make_unique<caf::actor_system>(config);
  }

  Expected<Echo> find(std::uint16_t port, Duration timeout = kEchoDeadline,
                      const std::string& host = "127.0.0.1") {
    DialConfig to{"it", host, port, timeout, nullptr};
    to.credentials = credentials;
    return dial<Echo>(*system, to);
  }
  // What the actor answers; empty: nothing.
  std::string ask(const Echo& actor, const std::string& text) {
    caf::scoped_actor self{*system};
    std::string answer;
    self->request(actor, kEchoDeadline, text)
        .receive([&](std::string& echoed) { answer = std::move(echoed); },
                 [&](const caf::error& error) { ADD_FAILURE() << system->render(error); });
    return answer;
  }

  // The answers to requests that are all sent before the first is answered.
  std::vector<std::string> ask_all(const Echo& actor, const std::vector<std::string>& texts) {
    caf::scoped_actor self{*system};
    using Asked = decltype(self->request(actor, kEchoDeadline, std::string()));
    std::vector<Asked> asked;
    asked.reserve(texts.size());
    for (const std::string& text : texts)
      asked.push_back(self->request(actor, kEchoDeadline, text));
    std::vector<std::string> answers;
    for (Asked& one : asked)
      one.receive([&](std::string& echoed) { answers.push_back(std::move(echoed)); },
                  [&](const caf::error& error) { ADD_FAILURE() << system->render(error); });
    return answers;
  }

  const CredentialsPtr credentials;
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
};

// `here_` publishes the actor, and `there_` has found it.
class PublishedEcho : public testing::Test {
 protected:
  explicit PublishedEcho(const CredentialsPtr& here = nullptr,
                         const CredentialsPtr& there = nullptr,
                         const SilentConnections::Limits& silence = {})
      : here_(here), there_(there) {
    actor_ = here_.system->spawn(echo);
    const auto port =
        publish_actor(*here_.system, actor_, {"127.0.0.1", 0, here_.credentials, silence});
    EXPECT_TRUE(port.ok()) << (port.ok() ? "" : port.error().message);
    if (port) port_ = *port;
    auto found = there_.find(port_);
    EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
    if (found) proxy_ = *found;
  }
  ~PublishedEcho() override {
    proxy_ = Echo{};
    caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
    actor_ = Echo{};
  }

  // The handshake is complete, and the port has accepted the credentials.
  std::unique_ptr<tcp::Stream> dialled() const {
    auto stream = tcp::dial_stream("127.0.0.1:" + std::to_string(port_), kEchoDeadline, nullptr,
                                   *there_.credentials);
    EXPECT_TRUE(stream.ok()) << (stream.ok() ? "" : stream.error().message);
    return stream.ok() ? *std::move(stream) : nullptr;
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
    Side another(here_.credentials);
    auto found = another.find(port_);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(another.ask(*found, "new"), "new");
    *found = Echo{};
  }
  // `there_` finds no actor that `listens` publishes, is told why, and tries only once.
  void expect_refused_by(Side& listens, const std::string& why) {
    const Echo actor = listens.system->spawn(echo);
    const auto port = publish_actor(*listens.system, actor, {"127.0.0.1", 0, listens.credentials});
    ASSERT_TRUE(port.ok());
    const auto found = there_.find(*port);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Errc::protocol);
    EXPECT_NE(found.error().message.find(why), std::string::npos) << found.error().message;
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  }
  // ---- connections that send no message, to ports with and without credentials. `is_ended`:
  // whether the port has ended one.

  // Of a port that is kCrowded: all but the newest two have ended.
  template <class Connection, class IsEnded>
  void expect_room_for_two(const LogLines& log, std::vector<Connection> silent,
                           const IsEnded& is_ended) {
    const auto newest = silent.end() - 2;
    EXPECT_TRUE(wait_until([&] { return std::all_of(silent.begin(), newest, is_ended); }));
    EXPECT_TRUE(std::none_of(newest, silent.end(), is_ended));
    EXPECT_TRUE(log.wait_for({"control: dropped a connection from 127.0.0.1",
                              "it and 1 newer ones have sent nothing yet"}))
        << log.text();
    EXPECT_EQ(there_.ask(proxy_, "still there"), "still there");
    silent.clear();
    expect_unharmed();
  }
  // Of a port that is kImpatient: all end, once it receives something.
  template <class Connection, class IsEnded>
  void expect_all_ended(const LogLines& log, const std::vector<Connection>& silent,
                        const IsEnded& is_ended) {
    EXPECT_TRUE(wait_until([&] {
      there_.ask(proxy_, "the port receives something");
      return std::all_of(silent.begin(), silent.end(), is_ended);
    }));
    EXPECT_TRUE(log.wait_for(
        {"control: dropped a connection from 127.0.0.1", "no first message came within 0.05 s"}))
        << log.text();
    EXPECT_EQ(there_.ask(proxy_, "still there"), "still there");
  }
  // Of a port that is kPatient: none has ended, and there is no line about them.
  template <class Connection, class IsEnded>
  void expect_none_ended(const LogLines& log, const std::vector<Connection>& silent,
                         const IsEnded& is_ended) {
    expect_unharmed();
    EXPECT_TRUE(std::none_of(silent.begin(), silent.end(), is_ended));
    EXPECT_EQ(log.count({"dropped a connection"}), 0U) << log.text();
  }
  // Small, larger than a TLS record, and together larger than the buffers of the sockets.
  void expect_messages_as_sent() {
    Rng rng(4);
    std::vector<std::string> texts;
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{16384}, std::size_t{60'000}})
      texts.push_back(random_text(rng, size));
    for (int i = 0; i < 30; ++i) texts.push_back(random_text(rng, 1'000'000));
    EXPECT_TRUE(there_.ask_all(proxy_, texts) == texts) << "seed 4";
  }
  static std::string random_text(Rng& rng, std::size_t size) {
    std::string text(size, ' ');
    for (char& c : text) c = static_cast<char>(rng());
    return text;
  }

  Side here_, there_;
  Echo actor_, proxy_;
  std::uint16_t port_ = 0;
};

}  // namespace grapevine::published_echo
