// An actor that is published without TLS, and what other programs send to its port: their
// connection ends, with a line of the log, and nothing else changes.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include <caf/all.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/io/all.hpp>

#include "net/file_descriptor.hpp"
#include "tests/actors/cluster/secure/published_echo.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace plain_port_test {

using published_echo::PublishedEcho;
using published_echo::Side;
using published_echo::wait_until;

class WithLog {
 protected:
  const LogLines log_;  // outlives the actors
};

class PlainPort : protected WithLog, public PublishedEcho {
 protected:
  // Nobody is silent for too long, unless a test is about that.
  explicit PlainPort(const SilentConnections::Limits& silence = {256, std::chrono::hours(1)})
      : PublishedEcho(nullptr, nullptr, silence) {}

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
};

TEST_F(PlainPort, EveryMessageArrivesAsItWasSent) {
  expect_messages_as_sent();
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
  EXPECT_TRUE(log_.wait_for({"control: dropped a connection from 127.0.0.1", "1 MiB"}))
      << log_.text();
  expect_unharmed();
}

// Of this process and of others; a long one is no reason to end the connection.
TEST_F(PlainPort, ALongMessageHasALineForEachConnection) {
  EXPECT_EQ(there_.ask(proxy_, std::string(60'000, 'x')).size(), 60'000U);
  EXPECT_EQ(log_.count({"control: a message of"}), 0U) << log_.text();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(there_.ask(proxy_, std::string(100'000, 'x')).size(), 100'000U);
  EXPECT_EQ(log_.count({"[warning] control: a message of 100", "longer than 64 KiB"}), 1U)
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

// How many of the connections the other side has closed.
int count_ended(const std::vector<FileDescriptor>& sockets) {
  int ended = 0;
  for (const FileDescriptor& socket : sockets) {
    char buffer[4096];
    ssize_t got = 1;
    while (got > 0) got = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    ended += got == 0 || errno == ECONNRESET;
  }
  return ended;
}

// Room for two that are silent.
class CrowdedPort : public PlainPort {
 protected:
  CrowdedPort() : PlainPort({2, std::chrono::hours(1)}) {}
};

TEST_F(CrowdedPort, SilentConnectionsTakeNoMoreThanTheirRoom) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(connected());
  EXPECT_TRUE(wait_until([&] { return count_ended(silent) >= 8; })) << count_ended(silent);
  EXPECT_TRUE(log_.wait_for({"control: dropped a connection from 127.0.0.1",
                             "it and 1 newer ones have sent nothing yet"}))
      << log_.text();
  EXPECT_EQ(there_.ask(proxy_, "still there"), "still there");
  silent.clear();
  expect_unharmed();
}

// Silence ends soon.
class ImpatientPort : public PlainPort {
 protected:
  ImpatientPort() : PlainPort({256, std::chrono::milliseconds(50)}) {}
};

TEST_F(ImpatientPort, AConnectionThatStaysSilentIsEnded) {
  std::vector<FileDescriptor> silent;
  silent.push_back(connected());
  const FileDescriptor slow = connected();
  silent.push_back(FileDescriptor(::dup(slow.get())));
  send_bytes(slow, header(1, 100) + "half a greeting");
  EXPECT_TRUE(wait_until([&] {
    there_.ask(proxy_, "the port receives something");
    return count_ended(silent) == 2;
  }));
  EXPECT_TRUE(log_.wait_for(
      {"control: dropped a connection from 127.0.0.1", "no first message came within 0.05 s"}))
      << log_.text();
  EXPECT_EQ(there_.ask(proxy_, "still there"), "still there");
}

}  // namespace plain_port_test
}  // namespace grapevine
