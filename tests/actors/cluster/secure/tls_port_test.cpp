// Connections to an actor that is published with TLS, of programs with a certificate of the cluster
// that complete the handshake and then send no message: none stays longer than it may, and only so
// many at a time.
#include <gtest/gtest.h>
#include <sys/uio.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/cluster/secure/published_echo.hpp"

namespace grapevine {
namespace tls_port_test {

using published_echo::issued;
using published_echo::PublishedEcho;
using published_echo::WithAuthority;
using published_echo::WithLog;
using StreamPtr = std::unique_ptr<tcp::Stream>;

class TlsPort : protected WithLog, protected WithAuthority, public PublishedEcho {
 protected:
  explicit TlsPort(const SilentConnections::Limits& silence)
      : PublishedEcho(authority_context_, issued(authority_), silence) {}

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

class CrowdedTlsPort : public TlsPort {
 protected:
  CrowdedTlsPort() : TlsPort(published_echo::kCrowded) {}
};

TEST_F(CrowdedTlsPort, SilentConnectionsTakeNoMoreThanTheirRoom) {
  std::vector<StreamPtr> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(dialled());
  expect_room_for_two(log_, std::move(silent), is_ended);
}

class ImpatientTlsPort : public TlsPort {
 protected:
  ImpatientTlsPort() : TlsPort(published_echo::kImpatient) {}
};

TEST_F(ImpatientTlsPort, AConnectionThatStaysSilentIsEnded) {
  std::vector<StreamPtr> silent;
  for (int i = 0; i < 2; ++i) silent.push_back(dialled());
  char start[] = {1, 0, 0};  // of a greeting
  const iovec part{start, sizeof start};
  EXPECT_EQ(silent.back()->write(&part, 1).bytes, sizeof start);
  expect_all_ended(log_, silent, is_ended);
}

class PatientTlsPort : public TlsPort {
 protected:
  PatientTlsPort() : TlsPort(published_echo::kPatient) {}
};

TEST_F(PatientTlsPort, ASilentConnectionStaysAndHasNoLine) {
  std::vector<StreamPtr> silent;
  silent.push_back(dialled());
  { const StreamPtr gone = dialled(); }
  expect_none_ended(log_, silent, is_ended);
}

}  // namespace tls_port_test
}  // namespace grapevine
