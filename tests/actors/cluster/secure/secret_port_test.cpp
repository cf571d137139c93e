// An actor that is published with a secret: processes that know it reach the actor, and nothing
// that others send reaches CAF, whose own messages could end any actor.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "net/file_descriptor.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"
#include "tests/actors/cluster/secure/published_echo.hpp"

namespace grapevine {
namespace secret_port_test {

using published_echo::CredentialsPtr;
using published_echo::Echo;
using published_echo::echo;
using published_echo::issued;
using published_echo::PublishedEcho;
using published_echo::Side;
using published_echo::WithAuthority;
using published_echo::WithLog;

CredentialsPtr knows(const std::string& secret) { return tcp::credentials_of(nullptr, secret); }

class SecretPort : protected WithLog, protected WithAuthority, public PublishedEcho {
 protected:
  SecretPort() : PublishedEcho(knows("secret"), knows("secret"), published_echo::kPatient) {}

  void expect_refused(const CredentialsPtr& credentials, const std::string& why) {
    Side other(credentials);
    const auto found = other.find(port_);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Errc::protocol);  // no second attempt
    EXPECT_NE(found.error().message.find(why), std::string::npos) << found.error().message;
  }
};

TEST_F(SecretPort, EveryMessageArrivesAsItWasSent) {
  expect_messages_as_sent();
  expect_unharmed();
  EXPECT_EQ(log_.count({"dropped a connection"}), 0U) << log_.text();
}

TEST_F(SecretPort, AProcessWithAnotherSecretOrNoneIsToldSo) {
  expect_refused(knows("another"), "the secret differs: it does not accept that of this process");
  expect_refused(nullptr, "the secret differs: it asks for one, and this process has none");
  EXPECT_TRUE(log_.wait_for(
      {"[warning] control: dropped a connection from 127.0.0.1", "it does not know the secret"}))
      << log_.text();
  EXPECT_TRUE(log_.wait_for({"[warning] control: dropped a connection from 127.0.0.1",
                             "it closed the connection before its proof of the secret"}))
      << log_.text();
  expect_unharmed();
}

TEST_F(SecretPort, AProcessWithCertificatesIsToldThatTheOtherHasNone) {
  expect_refused(issued(authority_), "does not speak TLS");
  expect_unharmed();
}

// A program that uses CAF: with the actor's address it would end the actor.
TEST_F(SecretPort, CafAloneReachesNoActor) {
  Side other;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto found = other.system->middleman().remote_actor("127.0.0.1", port_);
    EXPECT_FALSE(found);
    if (found) caf::anon_send_exit(*found, caf::exit_reason::kill);
  }
  expect_unharmed();
}

// The header of a greeting of CAF, other protocols, and nothing that CAF would answer.
TEST_F(SecretPort, OtherBytesEndTheirConnectionBeforeCafReadsThem) {
  std::string header(32, '\0');
  header[0] = 1;
  for (const std::string& bytes :
       {header, std::string("GET / HTTP/1.0\r\n\r\n"), std::string(100'000, '\xff')}) {
    const FileDescriptor socket = connected();
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    const timeval patience{60, 0};  // only a hang reaches it
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    std::string answer;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = ::recv(socket.get(), buffer, sizeof buffer, 0)) > 0)
      answer.append(buffer, static_cast<std::size_t>(got));
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << "the connection is still open";
    EXPECT_LE(answer.size(), 40U) << "more than the greeting of the secret";
  }
  EXPECT_TRUE(log_.wait_for(
      {"[warning] control: dropped a connection from 127.0.0.1", "it sent no proof of the secret"}))
      << log_.text();
  expect_unharmed();
}

TEST_F(SecretPort, AListenerWithoutASecretIsNotOfTheSameJob) {
  Side plain;
  expect_refused_by(plain, "the secret differs: it asks for none");
}

TEST_F(SecretPort, AListenerWithTlsIsRecognised) {
  Side tls(authority_context_);
  expect_refused_by(tls, "it uses TLS");
}

}  // namespace secret_port_test
}  // namespace grapevine
