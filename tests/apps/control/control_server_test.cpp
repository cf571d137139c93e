// Hostile clients of a control server: the server answers others, and logs a line for each kind.
#include "apps/control/control_server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "actors/record/files.hpp"
#include "apps/control/control_client.hpp"
#include "apps/control/control_proof.hpp"
#include "apps/monitoring/bounded_server.hpp"
#include "net/addresses.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_certificates.hpp"
#include "tests/apps/monitoring/http_get.hpp"
#include "tests/apps/process.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace control_server_test {

using testing::HasSubstr;
using testing::Not;

constexpr char kSecret[] = "a secret of the job";

// Answers each question at once.
class AnsweringLine : public ControlHub::Line {
 public:
  void ask_status(ControlHub::StatusPromise answer) override {
    RunStatus status;
    status.stage = "running";
    status.ranks.resize(1);
    answer->set_value(status);
  }
  void ask_change(ControlRequest request, ControlHub::ChangePromise answer) override {
    ++*changes_;
    answer->set_value(std::string("rank ") + std::to_string(request.rank));
  }
  explicit AnsweringLine(std::shared_ptr<int> changes) : changes_(std::move(changes)) {}

 private:
  std::shared_ptr<int> changes_;
};

class ControlServerTest : public testing::Test {
 protected:
  void SetUp() override {
    hub_->attach(std::make_unique<AnsweringLine>(changes_));
    listen(nullptr);
  }
  void listen(std::shared_ptr<const tcp::TlsContext> tls, const std::string& host = "127.0.0.1") {
    auto server = ControlServer::on_port({host, 0, ""}, kSecret, hub_, {}, std::move(tls));
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = *std::move(server);
  }

  // A client that knows the secret. `tls`: its folder of certificates.
  Expected<ControlClient> client(const std::string& tls = "",
                                 const std::string& host = "127.0.0.1") const {
    return ControlClient::find(
        host + ":" + std::to_string(server_->port()), [](const char*) { return kSecret; }, tls);
  }
  void expect_answers() const {
    auto found = client();
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto status = found->status();
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(status->at("stage"), "running");
  }
  std::string exchange(const std::string& request) const {
    const int socket = connect_to(server_->port());
    EXPECT_GE(socket, 0);
    std::string answer;
    if (::send(socket, request.data(), request.size(), MSG_NOSIGNAL) >= 0) {
      char buffer[4096];
      for (ssize_t got = 0; (got = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
        answer.append(buffer, static_cast<std::size_t>(got));
    }
    ::close(socket);
    return answer;
  }
  static std::string post(const std::string& path, const std::string& headers,
                          const std::string& body) {
    return "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  const LogLines log_;  // outlives the server
  std::shared_ptr<int> changes_ = std::make_shared<int>(0);
  std::shared_ptr<ControlHub> hub_ = std::make_shared<ControlHub>();
  std::unique_ptr<ControlServer> server_;
};

TEST_F(ControlServerTest, GarbageAndEndlessLinesChangeNothing) {
  std::string garbage(5000, '\0');
  for (std::size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>(i * 131 + 7);
  for (int i = 0; i < 5; ++i) exchange(garbage + "\r\n\r\n");
  exchange("GET /v1/status HTTP/1.1\r\nX: " + std::string(100'000, 'x'));
  exchange(post("/v1/stop", "", "") + "no second request");
  exchange(post("/v1/drain", "Content-Length: 99999999999\r\n", "{}"));
  expect_answers();
  EXPECT_FALSE(hub_->stop_requested());
  EXPECT_EQ(*changes_, 0);
  EXPECT_GE(log_.count({"a client is refused"}), 1U) << log_.text();
  EXPECT_LE(log_.count({"a client is refused"}), 4U) << log_.text();
}

// The memory that this process has had at most since forget_most_memory(), in bytes.
std::uint64_t most_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) << 10;
  ADD_FAILURE() << "no VmHWM";
  return 0;
}
bool forget_most_memory() {
  return (std::ofstream("/proc/self/clear_refs") << "5" << std::flush).good();
}

// That many zeros, packed by gzip.
std::string zeros_as_gzip(std::size_t bytes) {
  constexpr int kGzip = 16 + MAX_WBITS;
  std::string zeros(std::size_t{64} << 10, '\0'), packed(std::size_t{64} << 10, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY),
            Z_OK);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  int status = Z_OK;
  for (std::size_t left = bytes; status == Z_OK;) {
    const std::size_t part = std::min(left, zeros.size());
    left -= part;
    stream.next_in = reinterpret_cast<Bytef*>(zeros.data());
    stream.avail_in = static_cast<uInt>(part);
    status = deflate(&stream, left == 0 ? Z_FINISH : Z_NO_FLUSH);
  }
  EXPECT_EQ(status, Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// 64 MiB of zeros, packed by brotli -q 9.
std::string zeros_as_brotli() {
  constexpr char kPacked[] =
      "\xcf\xff\xff\x7f\x00\x24\x00\xe2\xb1\x40\x72\xef\xff\xf9\xff\xff\x0f\x80\x04\x40"
      "\x1c\x16\x80\xee\xfd\x3f\xff\xff\xff\x01\x90\x00\x88\xc3\x02\xd0\xbd\xff\xcf\xff"
      "\xff\x7f\x00\x12\x00\x71\x58\x00\xba\xf7\xff";
  return {kPacked, sizeof kPacked - 1};
}

// A request of 16 KiB, which anybody may send, would take the memory of its unpacked body.
TEST_F(ControlServerTest, ABodyThatIsPackedIsNotUnpacked) {
  constexpr std::size_t kLarge = std::size_t{14} << 20;
  const std::string small = zeros_as_gzip(kLarge);
  ASSERT_LT(small.size(), BoundedServer::kLongestRequest - 512) << "with its headers too long";
  expect_answers();
  if (!forget_most_memory()) GTEST_SKIP() << "/proc/self/clear_refs cannot be written";
  const std::uint64_t before = most_memory();
  for (const auto& [encoding, body] : std::vector<std::pair<std::string, std::string>>{
           {"gzip", small}, {"deflate", small}, {"br", zeros_as_brotli()}})
    EXPECT_THAT(exchange(post("/v1/stop", "Content-Encoding: " + encoding + "\r\n", body)),
                HasSubstr(" 403 "))
        << encoding;
  EXPECT_LT(most_memory() - before, kLarge / 2);
  EXPECT_FALSE(hub_->stop_requested());
  expect_answers();
}

TEST_F(ControlServerTest, AnswersBesideManyConnections) {
  std::vector<int> sockets;
  for (int i = 0; i < 300; ++i) sockets.push_back(connect_to(server_->port()));
  for (const int socket : sockets) ::close(socket);
  expect_answers();
}

TEST_F(ControlServerTest, OnlyAProofOfThisRequestCounts) {
  const std::string answer = exchange("GET /v1/nonce HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto body = nlohmann::json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  const std::string nonce = body.at("nonce");
  const auto headers = [&](const std::string& proof) {
    return std::string(kNonceHeader) + ": " + nonce + "\r\n" + kProofHeader + ": " + proof + "\r\n";
  };
  const std::string arguments = "{\"rank\":2}";
  const auto proof = [&](const std::string& secret, const std::string& path) {
    return proof_of_request(secret, nonce, "POST", path, arguments);
  };
  const std::string drain = "/v1/drain";
  EXPECT_THAT(exchange(post(drain, "", arguments)), HasSubstr(" 403 "));
  EXPECT_THAT(exchange(post(drain, headers(proof("another", drain)), arguments)),
              HasSubstr(" 403 "));
  EXPECT_THAT(exchange(post(drain, headers(proof(kSecret, "/v1/stop")), arguments)),
              HasSubstr(" 403 "));
  EXPECT_EQ(*changes_, 0);
  const std::string good = post(drain, headers(proof(kSecret, drain)), arguments);
  EXPECT_THAT(exchange(good), HasSubstr("rank 2"));
  EXPECT_EQ(*changes_, 1);
  EXPECT_THAT(exchange(good), HasSubstr(" 403 "));  // a second time
  EXPECT_EQ(*changes_, 1);
  EXPECT_EQ(log_.count({"it does not prove that it knows the job's secret"}), 1U) << log_.text();
  EXPECT_THAT(log_.text(), Not(HasSubstr(kSecret)));
}

TEST_F(ControlServerTest, WrongArgumentsAreRefused) {
  auto found = client();
  ASSERT_TRUE(found.ok());
  for (const nlohmann::ordered_json& arguments :
       {nlohmann::ordered_json::object(), nlohmann::ordered_json{{"rank", "2"}},
        nlohmann::ordered_json{{"rank", -1}}, nlohmann::ordered_json{{"rank", 1e300}},
        nlohmann::ordered_json{{"rank", 4294967296}}, nlohmann::ordered_json::array({1, 2})}) {
    const auto answer = found->ask("drain", arguments);
    ASSERT_FALSE(answer.ok()) << arguments;
    EXPECT_EQ(answer.error().code, Errc::bad_input) << answer.error().message;
  }
  EXPECT_EQ(*changes_, 0);
}

// The exit code of the client is 2 then, as where nothing listens any more.
TEST_F(ControlServerTest, ARunThatHasEndedIsNoRun) {
  auto found = client();
  ASSERT_TRUE(found.ok());
  hub_->detach();
  const auto late = found->status();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().message, "the run has ended");
  EXPECT_EQ(late.error().code, Errc::bad_input);
  const auto stop = found->ask("stop", nlohmann::ordered_json::object());
  ASSERT_FALSE(stop.ok());
  EXPECT_EQ(stop.error().code, Errc::bad_input);
  EXPECT_FALSE(hub_->stop_requested());
  server_.reset();
  const auto later = found->status();
  ASSERT_FALSE(later.ok());
  EXPECT_EQ(later.error().code, Errc::bad_input) << later.error().message;
}

TEST_F(ControlServerTest, ARunThatIsEndingDoesNotPromiseToStop) {
  struct EndingLine : ControlHub::Line {
    void ask_status(ControlHub::StatusPromise) override {}
    void ask_change(ControlRequest request, ControlHub::ChangePromise answer) override {
      EXPECT_EQ(request.kind, ControlRequest::Kind::stop);
      answer->set_value(bad_input("the run has taken its last step"));
    }
  };
  hub_->attach(std::make_unique<EndingLine>());
  auto found = client();
  ASSERT_TRUE(found.ok());
  const auto stop = found->ask("stop", nlohmann::ordered_json::object());
  ASSERT_FALSE(stop.ok());
  EXPECT_EQ(stop.error().message, "the run has taken its last step");
  EXPECT_FALSE(hub_->stop_requested());
}

// Where nobody knows how far it is.
TEST_F(ControlServerTest, ARunThatHasNotBegunStops) {
  hub_ = std::make_shared<ControlHub>();
  listen(nullptr);
  auto found = client();
  ASSERT_TRUE(found.ok());
  const auto status = found->status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::failed) << status.error().message;
  EXPECT_TRUE(found->ask("stop", nlohmann::ordered_json::object()).ok());
  EXPECT_TRUE(hub_->stop_requested());
}

// As many as there are threads: they are cut off before the timeout of a client, in two tries.
TEST_F(ControlServerTest, AnswersBesideSilentClients) {
  std::vector<int> sockets;
  for (int i = 0; i < BoundedServer::kThreads; ++i) sockets.push_back(connect_to(server_->port()));
  for (const int socket : sockets) EXPECT_EQ(::send(socket, "G", 1, MSG_NOSIGNAL), 1);
  auto found = client();
  ASSERT_TRUE(found.ok());
  if (!found->status()) expect_answers();
  for (const int socket : sockets) ::close(socket);
}

// A run that holds on to a question does not hold the client.
TEST(ControlHub, ANeverAnsweredQuestionEnds) {
  struct SilentLine : ControlHub::Line {
    void ask_status(ControlHub::StatusPromise answer) override { kept = std::move(answer); }
    void ask_change(ControlRequest, ControlHub::ChangePromise) override {}  // drops the promise
    ControlHub::StatusPromise kept;
  };
  ControlHub hub;
  hub.attach(std::make_unique<SilentLine>());
  const auto status = hub.status();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Errc::timeout);
  EXPECT_FALSE(hub.ask({}).ok());
}

// The folder of a run whose process 0 accepts no connection by itself.
struct SilentRun {
  SilentRun() {
    std::ofstream(folder.path() / "job.toml") << "\n";
    address.sun_family = AF_UNIX;
    (folder.path() / "control.sock").string().copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(::bind(socket.get(), place(), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), 2), 0);
  }
  const sockaddr* place() const { return reinterpret_cast<const sockaddr*>(&address); }

  const TemporaryDirectory folder;
  sockaddr_un address{};
  FileDescriptor socket{::socket(AF_UNIX, SOCK_STREAM, 0)};
};

// A stopped process 0 takes no connection: as many wait as the system keeps, and it refuses others.
TEST(ControlClient, AStoppedProcessHasNotEnded) {
  SilentRun stopped;
  const auto& folder = stopped.folder;
  const auto connected = [&stopped] {
    FileDescriptor made(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    return std::pair(::connect(made.get(), stopped.place(), sizeof stopped.address) == 0,
                     std::move(made));
  };
  std::vector<FileDescriptor> waiting;
  for (auto [made, one] = connected(); made; std::tie(made, one) = connected())
    waiting.push_back(std::move(one));
  ASSERT_GE(waiting.size(), 2U);
  const auto error_of = [&folder] {
    auto client = ControlClient::find(folder.path().string(), [](const char*) { return ""; });
    EXPECT_TRUE(client.ok());
    const auto status = client->status();
    EXPECT_FALSE(status.ok());
    return status.error();
  };
  EXPECT_EQ(error_of().code, Errc::timeout);
  EXPECT_THAT(error_of().message, HasSubstr("does not answer"));
  stopped.socket.reset();
  EXPECT_EQ(error_of().code, Errc::bad_input);
  EXPECT_THAT(error_of().message, HasSubstr("has ended"));
}

// A run has its folder from its start to its end, and listens there in between.
TEST(ControlClient, ARunThatIsStartingHasNotEnded) {
  const TemporaryDirectory folder;
  const auto error_of = [&folder] {
    auto client = ControlClient::find(folder.path().string(), [](const char*) { return ""; });
    if (!client) return client.error();
    const auto status = client->status();
    EXPECT_FALSE(status.ok());
    return status.error();
  };
  EXPECT_THAT(error_of().message, HasSubstr("is not the folder of a run"));
  FolderLock run = *lock_folder(folder.path());
  ASSERT_NE(run, nullptr) << "the file system has no locks";
  EXPECT_EQ(error_of().code, Errc::failed);
  EXPECT_THAT(error_of().message, HasSubstr("does not answer: it is starting: ask again"));
  std::ofstream(folder.path() / "metrics.csv") << "\n";
  EXPECT_THAT(error_of().message, HasSubstr("starting, or has ended training and writes its last"));
  sockaddr_un left{};  // of an earlier run
  left.sun_family = AF_UNIX;
  (folder.path() / "control.sock").string().copy(left.sun_path, sizeof left.sun_path - 1);
  {
    const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&left), sizeof left), 0);
  }
  EXPECT_EQ(error_of().code, Errc::failed);
  EXPECT_THAT(error_of().message, HasSubstr("ask again"));
  run.reset();
  EXPECT_EQ(error_of().code, Errc::bad_input);
  EXPECT_THAT(error_of().message, HasSubstr("it has ended"));
}

// Longer than what the connection holds, so that the client still writes when process 0 ends.
TEST(ControlClient, AProcessThatEndsAmidARequestDoesNotEndItsClient) {
  constexpr std::size_t kLong = std::size_t{16} << 20;
  SilentRun run;
  auto client = ControlClient::find(run.folder.path().string(), [](const char*) { return ""; });
  ASSERT_TRUE(client.ok()) << client.error().message;
  std::thread process([&run] {
    FileDescriptor accepted(::accept(run.socket.get(), nullptr, nullptr));
    char first = 0;
    EXPECT_EQ(::read(accepted.get(), &first, 1), 1);
    run.socket.reset();
    accepted.reset();
  });
  const auto answer = client->ask("set", {{"text", std::string(kLong, 'x')}});
  process.join();
  ASSERT_FALSE(answer.ok());
  EXPECT_THAT(answer.error().message, HasSubstr("does not run"));
}

// ---- with TLS

class ControlTlsTest : public ControlServerTest {
 protected:
  void SetUp() override {
    ControlServerTest::SetUp();
    server_.reset();
    ASSERT_TRUE(authority_.issue(at("own")).ok());
    auto own = tcp::TlsContext::load(at("own"));
    ASSERT_TRUE(own.ok()) << own.error().message;
    listen(*own);
  }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  Error error_of_asking(const std::string& tls, const std::string& host = "127.0.0.1") const {
    auto found = client(tls, host);
    if (!found) return found.error();
    const auto status = found->status();
    EXPECT_FALSE(status.ok());
    return status.ok() ? Error{} : status.error();
  }
  void expect_answers_over_tls() const {
    auto found = client(at("own"));
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto status = found->status();
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(status->at("stage"), "running");
  }

  const TemporaryDirectory folder_;
  const tcp::Authority authority_;
};

TEST_F(ControlTlsTest, AnswersAndChanges) {
  expect_answers_over_tls();
  auto found = client(at("own"));
  ASSERT_TRUE(found.ok());
  const auto drained = found->ask("drain", {{"rank", 3}});
  ASSERT_TRUE(drained.ok()) << drained.error().message;
  EXPECT_EQ(*drained, "rank 3");
  EXPECT_EQ(*changes_, 1);
}

TEST_F(ControlTlsTest, AClientWithoutACertificateOfTheCaLearnsNothing) {
  EXPECT_THAT(error_of_asking("").message, HasSubstr("--tls"));
  ASSERT_TRUE(tcp::Authority().issue(at("other")).ok());
  EXPECT_THAT(error_of_asking(at("other")).message, HasSubstr("TLS fails"));
  EXPECT_THAT(error_of_asking(at("nowhere")).message, HasSubstr("nowhere/ca.pem"));
  // The server's CA beside a certificate of another one: the server refuses it.
  std::filesystem::copy_file(at("own/ca.pem"), at("other/ca.pem"),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of_asking(at("other")).message, HasSubstr("certificate"));
  EXPECT_THAT(exchange("GET /v1/nonce HTTP/1.1\r\nHost: x\r\n\r\n"), Not(HasSubstr("nonce")));
  EXPECT_GE(log_.count({"a client is refused: TLS"}), 1U) << log_.text();
  expect_answers_over_tls();
}

TEST_F(ControlTlsTest, AServerWithoutTlsIsNotTrusted) {
  server_.reset();
  listen(nullptr);
  EXPECT_THAT(error_of_asking(at("own")).message, HasSubstr("TLS fails"));
}

TEST_F(ControlTlsTest, AClientComparesTheNamesOfHosts) {
  const std::string host = tcp::primary_address(false);
  if (is_loopback_host(host)) GTEST_SKIP() << "this machine has loopback addresses alone";
  ASSERT_TRUE(authority_.issue(at("here"), tcp::kCertificateTerm, {host}).ok());
  ASSERT_TRUE(authority_.issue(at("node2"), tcp::kCertificateTerm, {"node2"}).ok());
  for (const std::string named : {"here", "node2"}) {
    const auto context = tcp::TlsContext::load(at(named));
    ASSERT_TRUE(context.ok()) << context.error().message;
    server_.reset();
    listen(*context, host);
    auto found = client(at("here"), host);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(found->status().ok(), named == "here");
  }
  const Error refused = error_of_asking(at("here"), host);
  EXPECT_EQ(refused.code, Errc::bad_input);
  EXPECT_THAT(refused.message, HasSubstr("is for node2, not for " + host));
  // Without a file check-hosts in the folder of the client nothing is compared.
  auto any = client(at("own"), host);
  ASSERT_TRUE(any.ok()) << any.error().message;
  EXPECT_TRUE(any->status().ok());
}

}  // namespace control_server_test
}  // namespace grapevine
