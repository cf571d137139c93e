// The proof of a secret on a connection: which ends accept each other, what each sends before it is
// proven to the other, and what an end without these credentials is told.
#include "net/tcp/credentials/secret_credentials.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "messages/random.hpp"

namespace grapevine::tcp {
namespace secret_credentials_test {

using StreamPtr = std::unique_ptr<Stream>;

constexpr std::size_t kGreetingBytes = 40, kProofBytes = 64;

// Two ends of a connection within the system, whose buffers take all that a handshake sends.
std::pair<FileDescriptor, FileDescriptor> connection() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

StreamPtr dialler(FileDescriptor socket, const std::string& secret) {
  return SecretCredentials(secret).dialled(std::move(socket), {"a host"});
}
StreamPtr listener(FileDescriptor socket, const std::string& secret) {
  return SecretCredentials(secret).accepted(std::move(socket));
}

Moved step(Stream& stream) {
  bool wants_write = false;
  return stream.handshake(wants_write);
}

// Both in turn, until neither waits for the other any more.
std::pair<Moved, Moved> shake_hands(Stream& dials, Stream& listens) {
  Moved one, other;
  one.blocked = other.blocked = true;
  for (int i = 0; i < 10 && (one.blocked || other.blocked); ++i) {
    if (one.blocked) one = step(dials);
    if (other.blocked) other = step(listens);
  }
  return {one, other};
}

void send_raw(const FileDescriptor& socket, const std::string& bytes) {
  ASSERT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}
std::string received(const FileDescriptor& socket) {
  std::string bytes(4096, '\0');
  const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  return bytes;
}
std::string read_text(Stream& stream) {
  std::string text(100, '\0');
  const iovec part{text.data(), text.size()};
  text.resize(stream.read(&part, 1).bytes);
  return text;
}
void expect_final(const Moved& moved, const std::string& why) {
  EXPECT_NE(moved.error.find(why), std::string::npos) << moved.error;
  EXPECT_TRUE(moved.is_final);
}

TEST(SecretCredentials, EndsWithTheSameSecretAcceptEachOther) {
  auto [a, b] = connection();
  const StreamPtr dials = dialler(std::move(a), "secret"),
                  listens = listener(std::move(b), "secret");
  const auto [one, other] = shake_hands(*dials, *listens);
  EXPECT_EQ(one.error + other.error, "");
  EXPECT_FALSE(one.blocked || other.blocked);
  std::string text = "what follows is as it was sent";
  const iovec part{text.data(), text.size()};
  EXPECT_EQ(listens->write(&part, 1).bytes, text.size());
  EXPECT_EQ(read_text(*dials), text);
}

// A listener sends what follows at once; it must be read by those that read the connection next.
TEST(SecretCredentials, BytesBehindTheHandshakeStayInTheSocket) {
  auto [a, b] = connection();
  const StreamPtr dials = dialler(std::move(a), "secret"),
                  listens = listener(std::move(b), "secret");
  EXPECT_TRUE(step(*dials).blocked);
  EXPECT_TRUE(step(*listens).blocked);
  EXPECT_TRUE(step(*dials).blocked);
  const Moved done = step(*listens);
  EXPECT_FALSE(done.blocked || !done.error.empty()) << done.error;
  std::string text = "greeting";
  const iovec part{text.data(), text.size()};
  EXPECT_EQ(listens->write(&part, 1).bytes, text.size());
  const Moved last = step(*dials);
  EXPECT_FALSE(last.blocked || !last.error.empty()) << last.error;
  pollfd ready{dials->descriptor(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 1) << "an event loop would wait for ever";
  EXPECT_EQ(read_text(*dials), text);
}

TEST(SecretCredentials, AnotherSecretIsRefusedAtBothEnds) {
  for (const std::string other : {"Secret", "secret ", "s", "secre"}) {
    SCOPED_TRACE(other);
    auto [a, b] = connection();
    const StreamPtr dials = dialler(std::move(a), other),
                    listens = listener(std::move(b), "secret");
    const auto [one, two] = shake_hands(*dials, *listens);
    expect_final(one, "the secret differs: it does not accept that of this process");
    expect_final(two, "it does not know the secret");
  }
}

// Against what a listener sends before the proof no program can try secrets.
TEST(SecretCredentials, AListenerProvesNothingToADiallerWithoutTheSecret) {
  auto [a, b] = connection();
  const StreamPtr listens = listener(std::move(b), "secret");
  EXPECT_TRUE(step(*listens).blocked);
  const std::string greeting = received(a);
  ASSERT_EQ(greeting.size(), kGreetingBytes);
  send_raw(a, greeting + std::string(kProofBytes, 'f'));
  expect_final(step(*listens), "it does not know the secret");
  EXPECT_EQ(received(a), std::string(kProofBytes, '\0'));
}

// A program without the secret in the place of the listener, with nothing but what it was sent.
TEST(SecretCredentials, ADiallerAcceptsNeitherItsOwnProofNorAnyOther) {
  for (const bool own : {true, false}) {
    auto [a, b] = connection();
    const StreamPtr dials = dialler(std::move(a), "secret");
    EXPECT_TRUE(step(*dials).blocked);
    const std::string greeting = received(b);
    send_raw(b, greeting);
    EXPECT_TRUE(step(*dials).blocked);
    const std::string proof = received(b);
    ASSERT_EQ(proof.size(), kProofBytes);
    send_raw(b, own ? proof : std::string(kProofBytes, 'f'));
    expect_final(step(*dials),
                 "the program that listens there does not prove that it knows the secret");
  }
}

TEST(SecretCredentials, ARecordedHandshakeIsOfNoUse) {
  std::string recorded;
  {
    auto [a, b] = connection();
    auto [c, d] = connection();
    const StreamPtr dials = dialler(std::move(a), "secret"),
                    listens = listener(std::move(d), "secret");
    for (int i = 0; i < 4; ++i) {  // a relay between both
      step(*dials);
      const std::string sent = received(b);
      recorded += sent;
      if (!sent.empty()) send_raw(c, sent);
      step(*listens);
      const std::string answer = received(c);
      if (!answer.empty()) send_raw(b, answer);
    }
    ASSERT_EQ(recorded.size(), kGreetingBytes + kProofBytes);
    ASSERT_FALSE(step(*listens).blocked);
  }
  auto [a, b] = connection();
  const StreamPtr listens = listener(std::move(b), "secret");
  send_raw(a, recorded);
  expect_final(step(*listens), "it does not know the secret");
}

TEST(SecretCredentials, EachConnectionHasAnotherNumber) {
  auto [a, b] = connection();
  auto [c, d] = connection();
  const StreamPtr one = listener(std::move(a), "secret"), other = listener(std::move(c), "secret");
  step(*one);
  step(*other);
  EXPECT_NE(received(b), received(d));
}

// As the system may deliver it: a relay passes the bytes on one at a time.
TEST(SecretCredentials, AHandshakeInPiecesIsComplete) {
  auto [a, b] = connection();
  auto [c, d] = connection();
  const StreamPtr dials = dialler(std::move(a), "secret"),
                  listens = listener(std::move(d), "secret");
  std::string to_listener, to_dialler;
  const auto pass_one = [](std::string& bytes, const FileDescriptor& to) {
    if (bytes.empty()) return;
    send_raw(to, bytes.substr(0, 1));
    bytes.erase(0, 1);
  };
  Moved one, other;
  one.blocked = other.blocked = true;
  for (int i = 0; i < 1000 && (one.blocked || other.blocked); ++i) {
    if (one.blocked) one = step(*dials);
    if (other.blocked) other = step(*listens);
    to_listener += received(b);
    to_dialler += received(c);
    pass_one(to_listener, c);
    pass_one(to_dialler, b);
  }
  EXPECT_FALSE(one.blocked || other.blocked);
  EXPECT_EQ(one.error + other.error, "");
}

// What other programs, and processes without a secret, send in place of the greeting.
TEST(SecretCredentials, OtherBytesAreRefusedAtTheFirstOfThem) {
  Rng rng(6);
  std::vector<std::string> all = {
      "GET / HTTP/1.0\r\n\r\n", "\x16\x03\x01\x02", std::string(32, '\0'), "GVTC", "G", "x"};
  for (int i = 0; i < 50; ++i) {
    std::string bytes(1 + rng() % 100, ' ');
    for (char& c : bytes) c = static_cast<char>(rng());
    if (bytes[0] != 'G') all.push_back(std::move(bytes));
  }
  for (const std::string& bytes : all) {
    SCOPED_TRACE(testing::Message() << "seed 6: " << testing::PrintToString(bytes));
    auto [a, b] = connection();
    const StreamPtr listens = listener(std::move(b), "secret");
    send_raw(a, bytes);
    const Moved moved = step(*listens);
    if (bytes == "G") {
      EXPECT_TRUE(moved.blocked && moved.error.empty()) << "it may become a greeting";
    } else {
      expect_final(moved, "it sent no proof of the secret");
    }
  }
}

TEST(SecretCredentials, ADiallerIsToldWhatTheOtherSideIs) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string("\x15\x03\x01\x00\x02\x02\x46", 7), "it uses TLS and this process does not"},
      {std::string(32, '\0'), "the secret differs: it asks for none"},
      {"SSH-2.0-OpenSSH", "another program listens there"},
      {std::string("GVSC\x02\0\0\0", 8) + std::string(32, 'a'), "it runs another version"}};
  for (const auto& [bytes, text] : cases) {
    auto [a, b] = connection();
    const StreamPtr dials = dialler(std::move(a), "secret");
    send_raw(b, bytes);
    expect_final(step(*dials), text);
  }
}

TEST(SecretCredentials, AnEndIsAnErrorThatAnotherAttemptMayNotHave) {
  for (const std::size_t sent : {std::size_t{0}, std::size_t{10}, kGreetingBytes}) {
    auto [a, b] = connection();
    const StreamPtr dials = dialler(std::move(a), "secret");
    if (sent > 0) {
      auto [c, d] = connection();
      const StreamPtr other = listener(std::move(d), "secret");
      step(*other);
      send_raw(b, received(c).substr(0, sent));
    }
    ::shutdown(b.get(), SHUT_RDWR);
    const Moved moved = step(*dials);
    EXPECT_NE(moved.error, "");
    EXPECT_FALSE(moved.is_final);
  }
}

TEST(SecretCredentials, CertificatesStandInFrontOfASecret) {
  const auto certificates = std::make_shared<SecretCredentials>("in their place");
  EXPECT_EQ(credentials_of(certificates, "secret"), certificates);
  EXPECT_EQ(credentials_of(nullptr, ""), nullptr);
  EXPECT_NE(credentials_of(nullptr, "secret"), nullptr);
}

}  // namespace secret_credentials_test
}  // namespace grapevine::tcp
