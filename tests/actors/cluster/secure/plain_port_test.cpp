// An actor that is published without credentials, and what other programs send to its port: their
// connection ends, with a line of the log, and nothing else changes.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <caf/all.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/io/all.hpp>

#include "net/file_descriptor.hpp"
#include "tests/actors/cluster/secure/published_echo.hpp"

namespace grapevine {
namespace plain_port_test {

using published_echo::PublishedEcho;
using published_echo::Side;
using published_echo::WithLog;

class PlainPort : protected WithLog, public PublishedEcho {
 protected:
  explicit PlainPort(const SilentConnections::Limits& silence = published_echo::kPatient)
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

// At each of its two ends; a long one is no reason to end the connection.
TEST_F(PlainPort, ALongMessageHasALineForEachConnection) {
  EXPECT_EQ(there_.ask(proxy_, std::string(60'000, 'x')).size(), 60'000U);
  EXPECT_EQ(log_.count({"control: a message of"}), 0U) << log_.text();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(there_.ask(proxy_, std::string(100'000, 'x')).size(), 100'000U);
  EXPECT_EQ(log_.count({"[warning] control: a message of 100", "longer than 64 KiB"}), 2U)
      << log_.text();
  expect_unharmed();
}

// Whether the other side has closed the connection.
bool is_ended(const FileDescriptor& socket) {
  char buffer[4096];
  ssize_t got = 1;
  while (got > 0) got = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  return got == 0 || errno == ECONNRESET;
}

// What is refused with other programs alone: half a greeting says nothing yet.
TEST_F(PlainPort, ASilentConnectionHasNoLine) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 2; ++i) silent.push_back(connected());
  send_bytes(silent.back(), header(1, 100).substr(0, 20));
  { const FileDescriptor gone = connected(); }
  expect_none_ended(log_, silent, is_ended);
}

class CrowdedPort : public PlainPort {
 protected:
  CrowdedPort() : PlainPort(published_echo::kCrowded) {}
};

TEST_F(CrowdedPort, SilentConnectionsTakeNoMoreThanTheirRoom) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(connected());
  expect_room_for_two(log_, std::move(silent), is_ended);
}

class ImpatientPort : public PlainPort {
 protected:
  ImpatientPort() : PlainPort(published_echo::kImpatient) {}
};

TEST_F(ImpatientPort, AConnectionThatStaysSilentIsEnded) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 2; ++i) silent.push_back(connected());
  send_bytes(silent.back(), header(1, 100) + "half a greeting");
  expect_all_ended(log_, silent, is_ended);
}

}  // namespace plain_port_test
}  // namespace grapevine
