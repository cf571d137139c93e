// Connections to an actor that is published with TLS, of programs with a certificate of the cluster
// that complete the handshake and then send no message: none stays longer than it may, and only so
// many at a time.
#include <gtest/gtest.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "net/tcp/tcp_dial.hpp"
#include "tests/actors/cluster/secure/published_echo.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace tls_port_test {

using published_echo::issued;
using published_echo::kEchoDeadline;
using published_echo::PublishedEcho;
using published_echo::wait_until;
using published_echo::WithAuthority;
using StreamPtr = std::unique_ptr<tcp::Stream>;

class WithLog {
 protected:
  const LogLines log_;  // outlives the actors
};

class TlsPort : protected WithLog, protected WithAuthority, public PublishedEcho {
 protected:
  explicit TlsPort(const SilentConnections::Limits& silence)
      : PublishedEcho(authority_context_, issued(authority_), silence) {}

  // The handshake is complete, and the port has accepted the certificate.
  StreamPtr dialled() const {
    auto stream =
        tcp::dial_stream("127.0.0.1:" + std::to_string(port_), kEchoDeadline, nullptr, *there_.tls);
    EXPECT_TRUE(stream.ok()) << (stream.ok() ? "" : stream.error().message);
    return stream.ok() ? *std::move(stream) : nullptr;
  }
  // Reads what the middleman sends: its greeting, and the end.
  static bool is_ended(const StreamPtr& stream) {
    char buffer[4096];
    const iovec part{buffer, sizeof buffer};
    for (;;) {
      const tcp::Moved moved = stream->read(&part, 1);
      if (moved.ended || !moved.error.empty()) return true;
      if (moved.blocked) return false;
    }
  }
};

// Room for two that are silent.
class CrowdedTlsPort : public TlsPort {
 protected:
  CrowdedTlsPort() : TlsPort({2, std::chrono::hours(1)}) {}
};

TEST_F(CrowdedTlsPort, SilentConnectionsTakeNoMoreThanTheirRoom) {
  std::vector<StreamPtr> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(dialled());
  const auto oldest_ended = [&] { return std::all_of(silent.begin(), silent.end() - 2, is_ended); };
  EXPECT_TRUE(wait_until(oldest_ended));
  EXPECT_FALSE(is_ended(silent[8]) || is_ended(silent[9]));
  EXPECT_TRUE(log_.wait_for({"control: dropped a connection from 127.0.0.1",
                             "it and 1 newer ones have sent nothing yet"}))
      << log_.text();
  EXPECT_EQ(there_.ask(proxy_, "still there"), "still there");
  silent.clear();
  expect_unharmed();
}

// Silence ends soon.
class ImpatientTlsPort : public TlsPort {
 protected:
  ImpatientTlsPort() : TlsPort({256, std::chrono::milliseconds(50)}) {}
};

TEST_F(ImpatientTlsPort, AConnectionThatStaysSilentIsEnded) {
  const StreamPtr silent = dialled(), slow = dialled();
  char start[] = {1, 0, 0};  // of a greeting
  const iovec part{start, sizeof start};
  EXPECT_EQ(slow->write(&part, 1).bytes, sizeof start);
  EXPECT_TRUE(wait_until([&] {
    there_.ask(proxy_, "the port receives something");
    return is_ended(silent) && is_ended(slow);
  }));
  EXPECT_TRUE(log_.wait_for(
      {"control: dropped a connection from 127.0.0.1", "no first message came within 0.05 s"}))
      << log_.text();
  EXPECT_EQ(there_.ask(proxy_, "still there"), "still there");
}

// No silence lasts for too long.
class PatientTlsPort : public TlsPort {
 protected:
  PatientTlsPort() : TlsPort({256, std::chrono::hours(1)}) {}
};

TEST_F(PatientTlsPort, ASilentConnectionStaysAndHasNoLine) {
  const StreamPtr silent = dialled();
  { const StreamPtr gone = dialled(); }
  expect_unharmed();
  EXPECT_FALSE(is_ended(silent));
  EXPECT_EQ(log_.count({"dropped a connection"}), 0U) << log_.text();
}

}  // namespace tls_port_test
}  // namespace grapevine
