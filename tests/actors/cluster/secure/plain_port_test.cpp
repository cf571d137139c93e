// An actor that is published without TLS, and what other programs send to its port: their
// connection ends, with a line of the log, and nothing else changes.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <caf/all.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "messages/random.hpp"
#include "net/file_descriptor.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace plain_port_test {

using namespace std::chrono_literals;
using Echo = caf::typed_actor<caf::replies_to<std::string>::with<std::string>>;

constexpr auto kDeadline = 60s;  // only a hang reaches it

Echo::behavior_type echo() {
  return {[](std::string& text) { return std::move(text); }};
}

struct Side {
  Side() {
    config.load<caf::io::middleman>();
    system = std::make_unique<caf::actor_system>(config);
  }
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
};

class PlainPort : public testing::Test {
 protected:
  PlainPort() {
    actor_ = here_.system->spawn(echo);
    const auto port = publish_actor(*here_.system, actor_, {"127.0.0.1", 0, nullptr});
    EXPECT_TRUE(port.ok()) << (port.ok() ? "" : port.error().message);
    if (port) port_ = *port;
    proxy_ = found(there_);
  }
  ~PlainPort() override {
    proxy_ = Echo{};
    caf::anon_send_exit(actor_, caf::exit_reason::user_shutdown);
    actor_ = Echo{};
  }

  Echo found(Side& side) const {
    auto dialled = dial<Echo>(*side.system, {"it", "127.0.0.1", port_, kDeadline, nullptr});
    EXPECT_TRUE(dialled.ok()) << (dialled.ok() ? "" : dialled.error().message);
    return dialled ? *dialled : Echo{};
  }
  static std::string ask(Side& side, const Echo& actor, const std::string& text) {
    caf::scoped_actor self{*side.system};
    std::string answer;
    self->request(actor, kDeadline, text)
        .receive([&](std::string& echoed) { answer = std::move(echoed); },
                 [&](const caf::error& error) { ADD_FAILURE() << side.system->render(error); });
    return answer;
  }
  // The connection that exists, and a new one.
  void expect_unharmed() {
    EXPECT_EQ(ask(there_, proxy_, "still there"), "still there");
    Side another;
    Echo new_one = found(another);
    EXPECT_EQ(ask(another, new_one, "new"), "new");
    new_one = Echo{};
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
  static void send_bytes(const FileDescriptor& socket, const std::string& bytes) {
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Reads the greeting of the middleman and waits for the end.
  static bool ends(const FileDescriptor& socket) {
    const timeval patience{60, 0};  // only a hang reaches it
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char buffer[4096];
    for (;;) {
      const ssize_t got = ::recv(socket.get(), buffer, sizeof buffer, 0);
      if (got == 0) return true;
      if (got < 0) return errno == ECONNRESET;  // it had not read all
    }
  }
  // What a process of CAF begins with, and the header of a message of that length behind it.
  std::string greeting_and_header(std::uint32_t length) {
    std::vector<char> node;
    caf::binary_serializer sink(*there_.system, node);
    Side other;
    EXPECT_FALSE(sink(const_cast<caf::node_id&>(other.system->node())));
    return header(1, static_cast<std::uint32_t>(node.size())) +
           std::string(node.begin(), node.end()) + header(2, length);
  }
  static std::string header(unsigned kind, std::uint32_t length) {
    std::string bytes(32, '\0');
    bytes[0] = static_cast<char>(kind);
    for (int i = 0; i < 4; ++i) bytes[4 + i] = static_cast<char>(length >> (24 - 8 * i));
    return bytes;
  }

  const LogLines log_;  // outlives the actors
  Side here_, there_;
  Echo actor_, proxy_;
  std::uint16_t port_ = 0;
};

TEST_F(PlainPort, EveryMessageArrivesAsItWasSent) {
  Rng rng(4);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{16384},
                                 std::size_t{60'000}, std::size_t{30'000'000}}) {
    std::string text(size, ' ');
    for (char& c : text) c = static_cast<char>(rng());
    EXPECT_TRUE(ask(there_, proxy_, text) == text) << size << " bytes, seed 4";
  }
  expect_unharmed();
  EXPECT_EQ(log_.count({"dropped a connection"}), 0U) << log_.text();
}

TEST_F(PlainPort, OtherProgramsAreDroppedWithALine) {
  std::string post = "POST / HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n\r\n";
  post += std::string(1 << 20, 'x');
  for (const std::string& bytes : {std::string("GET / HTTP/1.0\r\n\r\n"), post,
                                   std::string("\x16\x03\x01\x02", 4), std::string(100, '\xff')}) {
    const FileDescriptor socket = connected();
    send_bytes(socket, bytes);
    EXPECT_TRUE(ends(socket)) << bytes.substr(0, 30);
  }
  EXPECT_TRUE(log_.wait_for({"control: dropped a connection from 127.0.0.1",
                             "its bytes are not those of a process of Grapevine"}))
      << log_.text();
  expect_unharmed();
}

TEST_F(PlainPort, AMessageOfFourGigabytesIsDroppedWithALineOfItsOwn) {
  const FileDescriptor garbage = connected();
  send_bytes(garbage, "x");
  EXPECT_TRUE(ends(garbage));
  const FileDescriptor socket = connected();
  send_bytes(socket, greeting_and_header(0xffffffffU));
  EXPECT_TRUE(ends(socket));
  EXPECT_TRUE(log_.wait_for({"control: dropped a connection from 127.0.0.1", "64 MiB"}))
      << log_.text();
  expect_unharmed();
}

// What is refused with other programs alone: half a greeting says nothing yet.
TEST_F(PlainPort, ASilentConnectionHasNoLine) {
  const FileDescriptor silent = connected(), slow = connected();
  send_bytes(slow, header(1, 100).substr(0, 20));
  { const FileDescriptor gone = connected(); }
  expect_unharmed();
  EXPECT_EQ(log_.count({"dropped a connection"}), 0U) << log_.text();
}

}  // namespace plain_port_test
}  // namespace grapevine
