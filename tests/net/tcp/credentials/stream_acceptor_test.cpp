// The acceptor of connections with credentials: what it hands over, and what it keeps out.
#include "net/tcp/credentials/stream_acceptor.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_certificates.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine::tcp {
namespace stream_acceptor_test {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Context = std::shared_ptr<const TlsContext>;

constexpr auto kTimeout = 60s;

Context issued(const Authority& authority) {
  std::string name = (fs::temp_directory_path() / "acceptor-XXXXXX").string();
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  EXPECT_TRUE(authority.issue(name).ok());
  auto loaded = TlsContext::load(name);
  fs::remove_all(name);
  return loaded.ok() ? *loaded : nullptr;
}

class Acceptor : public testing::Test {
 protected:
  explicit Acceptor(StreamAcceptor::Limits limits = {256, 1h}) {
    auto made = StreamAcceptor::listen("127.0.0.1", 0, own_, "test", limits);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    acceptor_ = *std::move(made);
    acceptor_->start([this](std::unique_ptr<Stream> stream) {
      const std::lock_guard<std::mutex> lock(mutex_);
      streams_.push_back(std::move(stream));
      changed_.notify_all();
    });
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(acceptor_->port()); }
  bool wait_streams(std::size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kTimeout, [&] { return streams_.size() >= count; });
  }
  FileDescriptor connected() const {
    FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(acceptor_->port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    return socket;
  }
  static bool has_end(const FileDescriptor& socket) {
    char byte = 0;
    return ::recv(socket.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
  }
  // Until the other side has closed it.
  static bool wait_end(const FileDescriptor& socket) {
    const timeval timeout{60, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    char byte = 0;
    ssize_t size = 0;
    while ((size = ::recv(socket.get(), &byte, 1, 0)) > 0) continue;
    return size == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

  const Authority authority_;
  const Context own_ = issued(authority_);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Stream>> streams_;  // guarded by mutex_
  std::unique_ptr<StreamAcceptor> acceptor_;      // last: its thread uses the others
};

TEST_F(Acceptor, HandsOverStreamsWhoseBothSidesAreProved) {
  const Context other = issued(authority_);
  auto dialled = dial_stream(address(), kTimeout, nullptr, *other);
  ASSERT_TRUE(dialled.ok()) << dialled.error().message;
  ASSERT_TRUE(wait_streams(1));
  std::string text = "hello";
  const iovec out{text.data(), text.size()};
  EXPECT_EQ((*dialled)->write(&out, 1).bytes, text.size());
  std::string read(text.size(), ' ');
  std::size_t size = 0;
  const auto deadline = Clock::now() + kTimeout;
  while (size < read.size() && Clock::now() < deadline) {
    const iovec in{read.data() + size, read.size() - size};
    const std::lock_guard<std::mutex> lock(mutex_);
    size += streams_[0]->read(&in, 1).bytes;
  }
  EXPECT_EQ(read, text);
}

TEST_F(Acceptor, ACertificateOfAnotherAuthorityIsRefused) {
  const Context other = issued(Authority());
  const auto dialled = dial_stream(address(), kTimeout, nullptr, *other);
  ASSERT_FALSE(dialled.ok());
  EXPECT_EQ(dialled.error().code, Errc::protocol);
  EXPECT_NE(dialled.error().message.find("certificate"), std::string::npos);
  const std::lock_guard<std::mutex> lock(mutex_);
  EXPECT_TRUE(streams_.empty());
}

class CrowdedAcceptor : public Acceptor {
 protected:
  CrowdedAcceptor() : Acceptor({4, 1h}) {}
};

// More silent connections than are admitted: the oldest ones end, so that a process with a
// certificate is accepted beside the newest.
TEST_F(CrowdedAcceptor, TheOldestHandshakeGivesWay) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(connected());
  const auto dialled = dial_stream(address(), kTimeout, nullptr, *issued(authority_));
  EXPECT_TRUE(dialled.ok()) << (dialled.ok() ? "" : dialled.error().message);
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(wait_end(silent[static_cast<std::size_t>(i)])) << i;
  for (int i = 7; i < 10; ++i) EXPECT_FALSE(has_end(silent[static_cast<std::size_t>(i)])) << i;
}

class ImpatientAcceptor : public Acceptor {
 protected:
  ImpatientAcceptor() : Acceptor({256, 50ms}) {}
};

TEST_F(ImpatientAcceptor, SilentConnectionsEnd) {
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(connected());
  for (const FileDescriptor& socket : silent) EXPECT_TRUE(wait_end(socket));
}

TEST_F(Acceptor, EndsWithConnectionsInTheirHandshake) {
  const FileDescriptor silent = connected(), half = connected();
  const unsigned char beginning[] = {22, 3, 1, 2};  // of a record
  EXPECT_EQ(::send(half.get(), beginning, sizeof beginning, MSG_NOSIGNAL), 4);
  // Connections are accepted in their order: the other two are in their handshake now.
  const auto dialled = dial_stream(address(), kTimeout, nullptr, *own_);
  ASSERT_TRUE(dialled.ok()) << dialled.error().message;
  acceptor_.reset();
  EXPECT_TRUE(wait_end(silent));
  EXPECT_TRUE(wait_end(half));
}

TEST_F(Acceptor, AServerThatRequiresTlsIsKnownByItsAnswer) {
  EXPECT_TRUE(answers_with_tls(connected(), kTimeout));
  // One that does not.
  FileDescriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t size = sizeof at;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size);
  FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
  const FileDescriptor server(::accept(listener.get(), nullptr, nullptr));
  EXPECT_EQ(::send(server.get(), "HTTP/1.1 400", 12, MSG_NOSIGNAL), 12);
  EXPECT_FALSE(answers_with_tls(std::move(client), 1s));
}

}  // namespace stream_acceptor_test
}  // namespace grapevine::tcp
