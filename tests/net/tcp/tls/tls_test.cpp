// The TCP transport with TLS: the contract holds, and connections without a valid certificate of
// the CA end without an effect on the others.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net/addresses.hpp"
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
  const LinkIdentity own{1, placement_digest(one_each(1, 2)), kJob};
  const auto refused = tcp::dial(world.endpoint(0).address(), own, 0, tcp::Clock::now() + 2s,
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
  const LinkIdentity own{1, placement_digest(one_each(1, 2)), kJob};
  const auto refused = tcp::dial(listening->address(), own, 0, tcp::Clock::now() + kTimeout,
                                 nullptr, false, brief.get());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::protocol);
  expect_contains(refused.error().message, "expired");
}

// The listening side has no TLS, or one of another authority.
TEST(TlsHostile, ADiallingProcessChecksTheOtherSide) {
  const LinkIdentity own{1, placement_digest(one_each(1, 2)), kJob};
  auto plain = make();
  const auto none =
      tcp::dial(plain->address(), own, 0, tcp::Clock::now() + 300ms, nullptr, false, usual().get());
  ASSERT_FALSE(none.ok());
  auto other = make(with(issued(tcp::Authority())));
  const auto wrong = tcp::dial(other->address(), own, 0, tcp::Clock::now() + kTimeout, nullptr,
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
  const LinkIdentity own{2, placement_digest(one_each(2, 3)), kJob};
  std::vector<std::unique_ptr<tcp::Stream>> puppet(2);
  run_threads(3, [&](int p) {
    if (p < 2) {
      RemoteTransport& own = p == 0 ? *first : *second;
      EXPECT_TRUE(own.connect(addresses, one_each(p, 3), kTimeout, {kJob, nullptr}).ok());
      return;
    }
    for (std::size_t to = 0; to < 2; ++to) {
      auto dialled = tcp::dial(addresses[to], own, static_cast<std::int32_t>(to),
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

// ---- names of hosts

// Certificates that name hosts, of one CA: a process of each.
Context issued_for(const tcp::Authority& authority, const std::vector<std::string>& hosts) {
  const Folder folder;
  EXPECT_TRUE(authority.issue(folder.at("tls"), tcp::kCertificateTerm, hosts).ok());
  return load(folder.at("tls"));
}

// The error of the side that dialled `hosts`; empty: both sides have accepted.
std::string error_of_handshake(const Context& dials, const std::vector<std::string>& hosts,
                               const Context& listens, std::string* seen_there = nullptr) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  const auto from = dials->dialled(FileDescriptor(ends[0]), hosts);
  const auto to = listens->accepted(FileDescriptor(ends[1]));
  tcp::Moved here, there;
  here.blocked = there.blocked = true;
  bool wants_write = false;
  for (int i = 0; i < 100 && (here.blocked || there.blocked); ++i) {
    if (here.error.empty() && here.blocked) here = from->handshake(wants_write);
    if (there.error.empty() && there.blocked) there = to->handshake(wants_write);
    if (!here.error.empty() && !there.error.empty()) break;
  }
  if (seen_there != nullptr) *seen_there = there.error;
  return here.error;
}

TEST(TlsNames, ACertificateOfAnotherHostIsRefusedOnBothSides) {
  const tcp::Authority authority;
  const Context first = issued_for(authority, {"node1", "10.0.0.1"});
  const Context second = issued_for(authority, {"node2", "10.0.0.2", "fd00::2"});
  for (const std::string host : {"node2", "NODE2", "10.0.0.2", "fd00:0::2", "fd00::2%eth0"})
    EXPECT_EQ(error_of_handshake(first, {host}, second), "") << host;
  // One of several names suffices: the address of a link, and the machine's own name.
  EXPECT_EQ(error_of_handshake(first, {"192.168.7.2", "node2"}, second), "");
  for (const std::string host :
       {"node1", "node", "node2.lan", "10.0.0.1", "10.0.0.20", "fd00::1"}) {
    std::string seen_there;
    const std::string error = error_of_handshake(first, {host}, second, &seen_there);
    expect_contains(error, "its certificate is not accepted");
    expect_contains(error, "is for node2, 10.0.0.2 and fd00::2, not for " + host);
    expect_contains(error, "--hosts");
    EXPECT_EQ(error.find('\n'), std::string::npos);
    expect_contains(seen_there, "refuses the certificate of this process");
  }
}

// An IPv4 address in IPv6 is that IPv4 address, on the side that dials and in certificates.
TEST(TlsNames, AnAddressHasOneMeaningInAllItsForms) {
  const tcp::Authority authority;
  for (const char* named : {"10.0.0.1", "::ffff:10.0.0.1"}) {
    const Context context = issued_for(authority, {named});
    for (const char* host : {"10.0.0.1", "::ffff:10.0.0.1", "::FFFF:a00:1"})
      EXPECT_EQ(error_of_handshake(context, {host}, context), "") << named << " " << host;
    for (const char* host : {"10.0.0.2", "::ffff:10.0.0.2", "::10.0.0.1"})
      expect_contains(error_of_handshake(context, {host}, context), "it is for 10.0.0.1, not for");
  }
}

TEST(TlsNames, AWildcardStandsForOneWholeLabel) {
  const tcp::Authority authority;
  const Context all = issued_for(authority, {"*.rack.lan", "node*.hall.lan", "*.lan"});
  for (const std::string host : {"node2.rack.lan", "NODE2.RACK.LAN", "node2.rack.lan."})
    EXPECT_EQ(error_of_handshake(all, {host}, all), "") << host;
  for (const std::string host : {"rack.lan", ".rack.lan", "a.node2.rack.lan", "node2.hall.lan",
                                 "node2.rack.lan.org", "node2.lan", "10.0.0.1"})
    expect_contains(error_of_handshake(all, {host}, all), "not for " + host);
}

// The dialling side decides; the names of its own certificate do not matter.
TEST(TlsNames, WithoutTheFileNothingIsCompared) {
  const tcp::Authority authority;
  const Context bound = issued_for(authority, {"node1"});
  const Context any = issued(authority);
  EXPECT_EQ(error_of_handshake(any, {"node2"}, bound), "");
  EXPECT_EQ(error_of_handshake(any, {"node2"}, any), "");
  EXPECT_EQ(error_of_handshake(bound, {}, any), "") << "loopback";
  expect_contains(error_of_handshake(bound, {"node2"}, any), "it is for no host, not for node2");
}

// Each further name costs a line of the certificate and none of the log.
TEST(TlsNames, AnErrorNamesAFewOfManyHosts) {
  const tcp::Authority authority;
  std::vector<std::string> hosts;
  for (int i = 0; i < 200; ++i) hosts.push_back("node" + std::to_string(i));
  const Context many = issued_for(authority, hosts);
  EXPECT_EQ(error_of_handshake(many, {"node199"}, many), "");
  const std::string error = error_of_handshake(many, {"other"}, many);
  expect_contains(error, "node0, node1, node2, node3 and others, not for other");
  EXPECT_LT(error.size(), 400U);
}

// By name and by address, over a link of the transport.
TEST(TlsNames, ALinkToAnotherHostIsRefused) {
  const std::string own = tcp::primary_address(false);
  if (is_loopback_host(own)) GTEST_SKIP() << "this machine has loopback addresses alone";
  const tcp::Authority authority;
  const auto connected = [&](const std::vector<std::string>& hosts, const std::string& machine) {
    const Context context = issued_for(authority, hosts);
    TcpOptions options = with(context);
    options.host = own;
    auto first = make(options);
    auto second = make(options);
    const std::vector<std::string> addresses = {first->address(), second->address()};
    std::array<Expected<void>, 2> results;
    run_threads(2, [&](int p) {
      Placement placement = one_each(p, 2);
      placement.host_of.assign(2, machine);
      RemoteTransport& transport = p == 0 ? *first : *second;
      results[static_cast<std::size_t>(p)] = transport.connect(
          addresses, placement, p == 0 ? Duration(3s) : kTimeout, {kJob, nullptr});
    });
    return results[1];
  };
  EXPECT_TRUE(connected({own}, "node1").ok());
  EXPECT_TRUE(connected({"node1"}, "node1").ok());
  const auto refused = connected({"node2", "192.0.2.1"}, "node1");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::protocol);
  expect_contains(refused.error().message,
                  "is for node2 and 192.0.2.1, not for " + own + " or node1");
}

// ---- files

TEST(TlsFiles, NamesThatAreToBeComparedAreNeeded) {
  const Folder folder;
  ASSERT_TRUE(tcp::Authority().issue(folder.at("tls")).ok());
  std::ofstream(folder.at("tls/check-hosts")) << "";
  EXPECT_TRUE(tcp::checks_hosts(folder.at("tls")));
  const auto loaded = tcp::TlsContext::load(folder.at("tls"));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, Errc::bad_input);
  expect_contains(loaded.error().message, "names no host");
  fs::remove(folder.at("tls/check-hosts"));
  EXPECT_FALSE(tcp::checks_hosts(folder.at("tls")));
  EXPECT_NE(load(folder.at("tls")), nullptr);
}

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
