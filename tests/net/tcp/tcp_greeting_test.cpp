// Greetings that programs without the job's token send by hand, with what they have recorded of
// others: none of them takes the place of a process, and none learns more than the versions.
#include "net/tcp/tcp_greeting.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/tcp/tcp_dial.hpp"
#include "tests/log_lines.hpp"
#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {
namespace tcp_greeting_test {

using Bytes = std::vector<std::byte>;

constexpr std::size_t kMoreThanAreHeld = 300;  // 256 are

sockaddr_in loopback_address(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

void write_all(int descriptor, const Bytes& bytes, std::size_t piece = 1 << 20) {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = std::min(piece, bytes.size() - at);
    const ssize_t count = ::send(descriptor, bytes.data() + at, size, MSG_NOSIGNAL);
    if (count < 0) return;  // the other side has ended the connection
    at += static_cast<std::size_t>(count);
  }
}

// At most `count` bytes: fewer where the other side has ended the connection.
Bytes read_bytes(int descriptor, std::size_t count) {
  Bytes bytes(count);
  const ssize_t size = ::recv(descriptor, bytes.data(), count, MSG_WAITALL);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  return bytes;
}

// Whether the other side ends the connection, after whatever it sends.
bool has_ended(int descriptor) {
  for (std::byte byte{};;) {
    const ssize_t size = ::recv(descriptor, &byte, 1, 0);
    if (size <= 0) return size == 0 || errno != EAGAIN;
  }
}

FileDescriptor connection_to(const std::string& address) {
  const auto port = std::stoi(tcp::split_address(address)->second);
  const sockaddr_in to = loopback_address(static_cast<std::uint16_t>(port));
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval longest{60, 0};  // only a hang reaches it
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return socket;
}

LinkIdentity identity(std::int32_t process, const JobToken& token = kJob) {
  return {process, placement_digest(one_each(process, 2)), token};
}

// One connection, with what was sent on it and what came back.
struct Greeting {
  FileDescriptor socket;
  Bytes hello, proof;
  tcp::Nonces nonces;
  Bytes answer;  // tcp::kProofBytes
};

Bytes expected_refusal() { return tcp::encode_proof({0, 0, Refusal::other_job, 0, {}}); }

Greeting greet(const std::string& address, const LinkIdentity& own, std::size_t piece = 1 << 20,
               std::int32_t to = 0) {
  Greeting greeting{connection_to(address), {}, {}, {}, {}};
  const tcp::Hello hello = tcp::make_hello();
  greeting.hello = tcp::encode_hello(hello);
  write_all(greeting.socket.get(), greeting.hello, piece);
  const Bytes theirs = read_bytes(greeting.socket.get(), tcp::kHelloBytes);
  if (theirs.size() != tcp::kHelloBytes) return greeting;
  const auto decoded = tcp::decode_hello(theirs.data());
  EXPECT_TRUE(decoded.ok());
  greeting.nonces = {hello.nonce, decoded->nonce};
  greeting.proof = tcp::encode_proof(tcp::proof_of_dialler(own, to, greeting.nonces));
  write_all(greeting.socket.get(), greeting.proof, piece);
  greeting.answer = read_bytes(greeting.socket.get(), tcp::kProofBytes);
  return greeting;
}

bool is_accepted(const Greeting& greeting) {
  if (greeting.answer.size() != tcp::kProofBytes) return false;
  const auto proof = tcp::decode_proof(greeting.answer.data());
  return proof && proof->refusal == Refusal::none;
}

// Process 0 of two; process 1 is what a test makes of it.
class WithListener : public testing::Test {
 protected:
  void SetUp() override {
    transport_ = make();
    address_ = transport_->address();
    connected_ = std::async(std::launch::async, [this] {
      return transport_->connect({address_, "process 1"}, one_each(0, 2), kTimeout, {kJob, nullptr})
          .ok();
    });
  }
  // The start is over, with a process 1 that sends pieces of that size.
  void connect_process_1(std::size_t piece = 1 << 20) {
    process_1_ = greet(address_, identity(1), piece);
    EXPECT_TRUE(is_accepted(process_1_));
    ASSERT_TRUE(connected_.get());
  }
  // It ends, and may return.
  void end_process_1() {
    const auto inbox = attach(*transport_, 0);
    process_1_.socket.reset();
    ASSERT_TRUE(inbox->wait_down(1));
    transport_->expect_process(1, {}, {});
  }

  const LogLines log_;
  std::unique_ptr<RemoteTransport> transport_;
  std::string address_;
  std::future<bool> connected_;
  Greeting process_1_;
};

class TcpProofs : public WithListener {};

// All that process 1 has sent is recorded. Its place is free, and the proof is of the right token.
TEST_F(TcpProofs, ARecordedGreetingDoesNotWorkAgain) {
  connect_process_1();
  end_process_1();
  const FileDescriptor other = connection_to(address_);
  write_all(other.get(), process_1_.hello);
  EXPECT_EQ(read_bytes(other.get(), tcp::kHelloBytes).size(), tcp::kHelloBytes);
  write_all(other.get(), process_1_.proof);
  EXPECT_EQ(read_bytes(other.get(), tcp::kProofBytes + 1), expected_refusal());
  EXPECT_TRUE(log_.wait_for({"tcp: dropped a connection from 127.0.0.1", "another job"}));
  EXPECT_TRUE(is_accepted(greet(address_, identity(1)))) << "the process itself may return";
}

// Without the token the answer holds neither process nor placement.
TEST_F(TcpProofs, AWrongTokenLearnsTheRefusalAlone) {
  for (const JobToken& token : {JobToken{}, kOtherJob})
    for (const std::int32_t process : {0, 1, 2}) {
      auto refused = std::async(std::launch::async,
                                [&] { return greet(address_, identity(process, token)).answer; });
      if (connected_.valid()) connect_process_1();  // others come after the start
      EXPECT_EQ(refused.get(), expected_refusal());
    }
}

// The addresses of process 1 are wrong: no link to it has been opened, and none is lost.
TEST_F(TcpProofs, AProofForAnotherProcessTakesNoPlace) {
  for (const std::int32_t to : {1, 5}) {
    const Greeting refused = greet(address_, identity(1), 1 << 20, to);
    ASSERT_EQ(refused.answer.size(), tcp::kProofBytes);
    const auto answer = tcp::decode_proof(refused.answer.data());
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->refusal, Refusal::other_process);
    EXPECT_EQ(answer->process, 0);
    EXPECT_TRUE(tcp::is_right_listener(*answer, kJob, refused.nonces,
                                       *tcp::decode_proof(refused.proof.data())));
  }
  EXPECT_TRUE(log_.wait_for({"tcp: dropped a connection from 127.0.0.1",
                             "process 1 dialled process 1 and reached process 0"}));
  connect_process_1();
}

// Only with the token: without it, another process is another job.
TEST_F(TcpProofs, AWrongTokenDoesNotLearnWhichProcessAnswers) {
  EXPECT_EQ(greet(address_, identity(1, kOtherJob), 1 << 20, 5).answer, expected_refusal());
  connect_process_1();
}

// A proof is read whole, in pieces of any size, and nothing of the token is on the wire.
TEST_F(TcpProofs, SlowBytesAreReadAndHoldNoToken) {
  connect_process_1(1);
  for (const Bytes* sent : {&process_1_.hello, &process_1_.proof, &process_1_.answer})
    EXPECT_EQ(std::search(sent->begin(), sent->end(), kJob.begin(), kJob.end()), sent->end());
}

// The dialling process names both versions, and so does the log here.
TEST_F(TcpProofs, AnotherVersionIsToldTheVersions) {
  for (const int at : {4, 6}) {  // of the protocol, of the codec
    Bytes hello = tcp::encode_hello(tcp::make_hello());
    hello[static_cast<std::size_t>(at)] ^= std::byte{0x40};
    const FileDescriptor other = connection_to(address_);
    write_all(other.get(), hello);
    const Bytes answer = read_bytes(other.get(), tcp::kHelloBytes);
    ASSERT_EQ(answer.size(), tcp::kHelloBytes);
    EXPECT_TRUE(tcp::decode_hello(answer.data()).ok());
    EXPECT_TRUE(has_ended(other.get()));
  }
  const std::string version = std::to_string(tcp::kProtocolVersion ^ 0x40);
  EXPECT_TRUE(log_.wait_for({"tcp: dropped a connection", "another version (protocol " + version}));
  connect_process_1();
}

// Bytes of another program get no answer.
TEST_F(TcpProofs, OtherProgramsGetNoByte) {
  const FileDescriptor other = connection_to(address_);
  write_all(other.get(), Bytes(tcp::kHelloBytes, std::byte{'G'}));
  EXPECT_TRUE(read_bytes(other.get(), 1).empty());
  EXPECT_TRUE(log_.wait_for({"tcp: dropped a connection", "does not speak this protocol"}));
  connect_process_1();
}

// ---- a program that listens in the place of a process

class FalseListener {
 public:
  // `answer`: to the bytes that have arrived; empty: the connection ends.
  explicit FalseListener(std::function<Bytes(const Bytes&)> answer) : answer_(std::move(answer)) {
    sockaddr_in own = loopback_address(0);
    socklen_t size = sizeof own;
    auto* const bytes = reinterpret_cast<sockaddr*>(&own);
    EXPECT_EQ(::bind(listening_.get(), bytes, size), 0);
    EXPECT_EQ(::listen(listening_.get(), 1), 0);
    EXPECT_EQ(::getsockname(listening_.get(), bytes, &size), 0);
    port_ = ntohs(own.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~FalseListener() {
    ::shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }

  // The error of a process that dials it.
  Error error_of_dialling(const Cancelled& cancelled = nullptr) const {
    const auto dialled = tcp::dial(tcp::join_address("127.0.0.1", port_), identity(1), 0,
                                   tcp::Clock::now() + kTimeout, cancelled);
    EXPECT_FALSE(dialled.ok());
    return dialled ? Error{} : dialled.error();
  }

 private:
  void run() const {
    for (;;) {
      const FileDescriptor socket(::accept(listening_.get(), nullptr, nullptr));
      if (socket.get() < 0) return;
      while (answers_once(socket.get())) continue;
    }
  }
  bool answers_once(int socket) const {
    Bytes arrived(1000);
    const ssize_t size = ::recv(socket, arrived.data(), arrived.size(), 0);
    if (size <= 0) return false;
    const Bytes answer = answer_({arrived.begin(), arrived.begin() + size});
    write_all(socket, answer);
    return !answer.empty();
  }

  const std::function<Bytes(const Bytes&)> answer_;
  const FileDescriptor listening_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
  std::thread thread_;
};

TEST(TcpFalseListener, TheOwnProofIsNotAccepted) {
  const FalseListener mirror([](const Bytes& arrived) { return arrived; });
  const Error error = mirror.error_of_dialling();
  EXPECT_EQ(error.code, Errc::protocol);
  EXPECT_NE(error.message.find("another job"), std::string::npos) << error.message;
}

// It claims to accept, or to refuse for a reason that would end the dialling process's job.
TEST(TcpFalseListener, NoRefusalIsBelievedWithoutAProof) {
  for (const Refusal refusal : {Refusal::none, Refusal::too_late, Refusal::duplicate_process}) {
    const FalseListener liar([refusal](const Bytes& arrived) {
      if (arrived.size() == tcp::kHelloBytes) return tcp::encode_hello(tcp::make_hello());
      return tcp::encode_proof(
          {0, 1, refusal, identity(0).placement, std::string(kProofDigits, '0')});
    });
    const Error error = liar.error_of_dialling();
    EXPECT_EQ(error.code, Errc::protocol);
    EXPECT_NE(error.message.find("another job"), std::string::npos) << error.message;
  }
}

TEST(TcpFalseListener, AnotherVersionIsNamed) {
  const FalseListener newer([](const Bytes&) {
    Bytes hello = tcp::encode_hello(tcp::make_hello());
    hello[4] = std::byte{99};
    return hello;
  });
  const Error error = newer.error_of_dialling();
  EXPECT_EQ(error.code, Errc::protocol);
  EXPECT_NE(error.message.find("another version (protocol 99,"), std::string::npos)
      << error.message;
}

// As it is where its connection has given way to newer ones.
TEST(TcpFalseListener, AProcessWhoseConnectionEndsBehindItsProofDialsAgain) {
  std::atomic<int> proofs{0};
  const FalseListener closing([&proofs](const Bytes& arrived) {
    if (arrived.size() == tcp::kHelloBytes) return tcp::encode_hello(tcp::make_hello());
    ++proofs;
    return Bytes();
  });
  const Error error = closing.error_of_dialling([&proofs] { return proofs >= 3; });
  EXPECT_EQ(error.code, Errc::failed) << error.message;
}

// ---- connections that stop in the middle of their greeting

class TcpStalledGreetings : public WithListener {};

// They cost a bounded number of connections for a bounded time.
TEST_F(TcpStalledGreetings, AreLimitedAndEnd) {
  std::vector<FileDescriptor> stalled;
  const Bytes hello = tcp::encode_hello(tcp::make_hello());
  for (std::size_t i = 0; i < kMoreThanAreHeld; ++i) {
    stalled.push_back(connection_to(address_));
    Bytes begun = hello;
    begun.resize(tcp::kHelloBytes + i % tcp::kProofBytes);
    write_all(stalled.back().get(), begun);
  }
  EXPECT_TRUE(log_.wait_for({"there are too many unauthenticated connections"}));
  for (const FileDescriptor& each : stalled) ASSERT_TRUE(has_ended(each.get()));
  EXPECT_TRUE(log_.wait_for({"it did not identify itself in time"}));
  connect_process_1();
}

// ---- connections that have sent a proof before the run connects, when none can be checked

// Any bytes are one. All are served, and a process of the run is among the last, whatever it was
// before.
TEST(TcpHeldGreetings, TheOldestGiveWay) {
  const LogLines log;
  const auto transport = make();
  const std::string address = transport->address();
  auto process_1 = std::async(std::launch::async, [&] {
    return tcp::dial(address, identity(1), 0, tcp::Clock::now() + kTimeout);
  });
  std::vector<FileDescriptor> held;
  for (std::size_t i = 0; i < kMoreThanAreHeld; ++i) {
    held.push_back(connection_to(address));
    write_all(held.back().get(), tcp::encode_hello(tcp::make_hello()));
    ASSERT_EQ(read_bytes(held.back().get(), tcp::kHelloBytes).size(), tcp::kHelloBytes) << i;
    write_all(held.back().get(), Bytes(tcp::kProofBytes));
  }
  EXPECT_TRUE(has_ended(held.front().get()));
  EXPECT_TRUE(log.wait_for({"tcp: dropped a connection from 127.0.0.1", "it gave way"}));
  EXPECT_TRUE(
      transport->connect({address, "process 1"}, one_each(0, 2), kTimeout, {kJob, nullptr}).ok());
  EXPECT_TRUE(process_1.get().ok());
}

}  // namespace tcp_greeting_test
}  // namespace grapevine::conformance
