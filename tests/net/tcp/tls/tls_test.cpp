// The TCP transport with TLS: the contract holds, and connections without a valid certificate of
// the CA end without an effect on the others.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_certificates.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "tests/net/tcp/tcp_world.hpp"
#include "tests/net/tcp/tls/expired_context.hpp"

namespace grapevine::conformance {
namespace tls_test {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Context = std::shared_ptr<const tcp::TlsContext>;

// A folder that goes away with the object.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tls-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

Context load(const std::string& folder) {
  auto loaded = tcp::TlsContext::load(folder);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? *loaded : nullptr;
}

Context issued(const tcp::Authority& authority) {
  const Folder folder;
  EXPECT_TRUE(authority.issue(folder.at("tls")).ok());
  return load(folder.at("tls"));
}

TcpOptions with(const Context& context) {
  TcpOptions options = loopback();
  options.tls = context;
  return options;
}

const Context& usual() {
  static const Context context = issued(tcp::Authority());
  return context;
}

class OneRankEach : public TcpWorld {
 public:
  explicit OneRankEach(std::int32_t world_size) : TcpWorld(world_size, 1, with(usual())) {}
};
INSTANTIATE_TYPED_TEST_SUITE_P(TcpTls, TransportSuite, OneRankEach);

// Both sides send more than the sockets take, and end.
TEST(Tls, ACleanEndFlushesWhatWasSent) {
  constexpr int kMessages = 40;
  TcpWorld world(2, 1, with(usual()));
  std::vector<std::shared_ptr<RecordingInbox>> inboxes;
  for (const Rank r : {0, 1}) inboxes.push_back(attach(world.endpoint(r), r));
  Rng rng(8);
  const FrozenTensor noise = random_bits(rng, 1000003, at::kByte);
  for (int i = 0; i < kMessages; ++i) {
    Envelope e = numbered(0, 1, i);
    std::get<Chunk>(e.payload).data = noise;
    world.endpoint(0).send(std::move(e));
  }
  world.end(0);
  ASSERT_TRUE(inboxes[1]->wait_down(0));
  const auto received = inboxes[1]->messages_from(0);
  ASSERT_EQ(received.size(), static_cast<std::size_t>(kMessages));
  EXPECT_TRUE(counts_up(received));
  for (const Envelope& e : received) EXPECT_TRUE(same_bits(std::get<Chunk>(e.payload).data, noise));
}

// The first message may reach the dialling process together with the answer to its greeting; no
// heartbeat wakes it later.
TEST(Tls, AMessageThatComesWithTheAnswerIsDelivered) {
  for (int round = 0; round < 40; ++round) {
    auto first = make(with(usual()));
    auto second = make(with(usual()));
    const std::vector<std::string> addresses = {first->address(), second->address()};
    std::shared_ptr<RecordingInbox> sender, inbox;
    run_threads(2, [&](int p) {
      RemoteTransport& own = p == 0 ? *first : *second;
      ASSERT_TRUE(own.connect(addresses, one_each(p, 2), kTimeout, {kJob, nullptr}).ok());
      if (p == 1) {
        inbox = attach(own, 1);
        return;
      }
      sender = attach(own, 0);
      own.send(numbered(0, 1, 0));
    });
    ASSERT_TRUE(inbox->wait_messages(1)) << "round " << round;
  }
}

// As soon as its connect() returns, messages of the others reach it.
TEST(Tls, ALostProcessReturns) {
  TcpWorld world(3, 1, with(usual()));
  expect_messages_at_once_after_returns(world);
}

// ---- hostile peers

// The error of a process without the right certificate. The link of the others stays up.
std::string error_of_dialling(const TcpOptions& options) {
  TcpWorld world(2, 1, with(usual()));
  auto a = attach(world.endpoint(0), 0);
  auto b = attach(world.endpoint(1), 1);
  const tcp::Hello hello{1, Refusal::none, kJob, placement_digest(one_each(1, 2))};
  const auto refused = tcp::dial(world.endpoint(0).address(), hello, 0, tcp::Clock::now() + 2s,
                                 nullptr, false, options.tls.get());
  EXPECT_FALSE(refused.ok());
  world.endpoint(1).send(numbered(1, 0, 0));
  world.endpoint(0).send(numbered(0, 1, 0));
  EXPECT_TRUE(a->wait_messages(1));
  EXPECT_TRUE(b->wait_messages(1));
  EXPECT_EQ(a->down_count(1) + b->down_count(0), 0);
  return refused.ok() ? "" : refused.error().message;
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(TlsHostile, AProcessWithoutTlsIsRefused) {
  expect_contains(error_of_dialling(loopback()), "TLS");
}

TEST(TlsHostile, AnotherAuthorityIsRefused) {
  expect_contains(error_of_dialling(with(issued(tcp::Authority()))), "certificate");
}

TEST(TlsHostile, AnExpiredCertificateIsRefused) {
  const tcp::Authority authority;
  const Context brief = expired_context(authority);
  const Context lasting = issued(authority);
  auto listening = make(with(lasting));
  const tcp::Hello hello{1, Refusal::none, kJob, placement_digest(one_each(1, 2))};
  const auto refused = tcp::dial(listening->address(), hello, 0, tcp::Clock::now() + kTimeout,
                                 nullptr, false, brief.get());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::protocol);
  expect_contains(refused.error().message, "expired");
}

// The listening side has no TLS, or one of another authority.
TEST(TlsHostile, ADiallingProcessChecksTheOtherSide) {
  const tcp::Hello hello{1, Refusal::none, kJob, placement_digest(one_each(1, 2))};
  auto plain = make();
  const auto none = tcp::dial(plain->address(), hello, 0, tcp::Clock::now() + 300ms, nullptr, false,
                              usual().get());
  ASSERT_FALSE(none.ok());
  auto other = make(with(issued(tcp::Authority())));
  const auto wrong = tcp::dial(other->address(), hello, 0, tcp::Clock::now() + kTimeout, nullptr,
                               false, usual().get());
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, Errc::protocol);
  expect_contains(wrong.error().message, "certificate");
}

// Bytes that are no TLS, at the beginning and behind the handshake.
TEST(TlsHostile, GarbageEndsItsConnectionOnly) {
  auto first = make(with(usual()));
  auto second = make(with(usual()));
  const std::vector<std::string> addresses = {first->address(), second->address(), "the puppet"};
  const tcp::Hello hello{2, Refusal::none, kJob, placement_digest(one_each(2, 3))};
  std::vector<std::unique_ptr<tcp::Stream>> puppet(2);
  run_threads(3, [&](int p) {
    if (p < 2) {
      RemoteTransport& own = p == 0 ? *first : *second;
      EXPECT_TRUE(own.connect(addresses, one_each(p, 3), kTimeout, {kJob, nullptr}).ok());
      return;
    }
    for (std::size_t to = 0; to < 2; ++to) {
      auto dialled = tcp::dial(addresses[to], hello, static_cast<std::int32_t>(to),
                               tcp::Clock::now() + kTimeout, nullptr, false, usual().get());
      ASSERT_TRUE(dialled.ok()) << dialled.error().message;
      puppet[to] = std::move(*dialled);
    }
  });
  auto a = attach(*first, 0);
  auto b = attach(*second, 1);
  Rng rng(6);
  std::vector<std::byte> garbage(3000);
  for (std::byte& byte : garbage) byte = static_cast<std::byte>(rng());
  // Past the encryption to the first process, through it to the second one.
  EXPECT_GT(::send(puppet[0]->descriptor(), garbage.data(), garbage.size(), MSG_NOSIGNAL), 0);
  const iovec part{garbage.data(), garbage.size()};
  EXPECT_EQ(puppet[1]->write(&part, 1).bytes, garbage.size());
  EXPECT_TRUE(a->wait_down(2));
  EXPECT_TRUE(b->wait_down(2));
  first->send(numbered(0, 1, 0));
  EXPECT_TRUE(b->wait_messages(1));
  EXPECT_EQ(b->down_count(0), 0);
}

// ---- files

std::string error_of_loading(const std::string& folder) {
  const auto loaded = tcp::TlsContext::load(folder);
  EXPECT_FALSE(loaded.ok());
  if (loaded.ok()) return "";
  EXPECT_EQ(loaded.error().code, Errc::bad_input);
  EXPECT_EQ(loaded.error().message.find('\n'), std::string::npos);
  return loaded.error().message;
}

TEST(TlsFiles, EachFileThatIsMissingOrWrongIsNamed) {
  for (const std::string name : {"ca.pem", "cert.pem", "key.pem"}) {
    const Folder folder;
    ASSERT_TRUE(tcp::Authority().issue(folder.at("tls")).ok());
    const std::string file = folder.at("tls/" + name);
    std::ofstream(file, std::ios::trunc) << "no certificate\n";
    expect_contains(error_of_loading(folder.at("tls")), file);
    fs::remove(file);
    expect_contains(error_of_loading(folder.at("tls")), file);
  }
}

TEST(TlsFiles, FilesThatDoNotBelongTogetherAreRefused) {
  for (const std::string name : {"ca.pem", "cert.pem", "key.pem"}) {
    const Folder folder;
    for (const char* own : {"a", "b"}) ASSERT_TRUE(tcp::Authority().issue(folder.at(own)).ok());
    fs::copy_file(folder.at("b/" + name), folder.at("a/" + name),
                  fs::copy_options::overwrite_existing);
    expect_contains(error_of_loading(folder.at("a")), folder.at("a"));
  }
}

TEST(TlsFiles, AnExpiredCertificateIsRefused) {
  const Folder folder;
  ASSERT_TRUE(tcp::Authority().issue(folder.at("tls"), -1s).ok());
  expect_contains(error_of_loading(folder.at("tls")), "expired");
}

TEST(TlsFiles, TheKeyIsForItsOwnerAndNothingIsOverwritten) {
  const Folder folder;
  ASSERT_TRUE(tcp::Authority().issue(folder.at("tls")).ok());
  struct stat status {};
  ASSERT_EQ(::stat(folder.at("tls/key.pem").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  for (const std::string gone : {"", "key.pem", "ca.pem"}) {
    if (!gone.empty()) fs::remove(folder.at("tls/" + gone));
    const auto again = tcp::Authority().issue(folder.at("tls"));
    ASSERT_FALSE(again.ok());
    EXPECT_EQ(again.error().code, Errc::bad_input);
    EXPECT_FALSE(!gone.empty() && fs::exists(folder.at("tls/" + gone)));
  }
}

}  // namespace tls_test
}  // namespace grapevine::conformance
