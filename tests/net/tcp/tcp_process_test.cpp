// The TCP transport between real processes: this binary starts itself again as the other one.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "tests/apps/process.hpp"
#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {
namespace tcp_process_test {

using namespace std::chrono_literals;

constexpr std::size_t kLarge = std::size_t{256} << 20;
constexpr int kFloods = 8;           // large messages of "flood"
constexpr int kFinalMessages = 200;  // messages of "leave", all but the last one small

FrozenTensor uninitialised(std::size_t bytes) {
  return FrozenTensor::freeze(at::empty({static_cast<std::int64_t>(bytes)}, at::kByte));
}

Envelope with_data(Envelope e, FrozenTensor data) {
  std::get<Chunk>(e.payload).data = std::move(data);
  return e;
}

// ---- The other process: rank 1 of 2

int play(const std::string& role, const std::string& address) {
  auto transport = make();
  if (!transport->connect({address, transport->address()}, one_each(1, 2), kPatience).ok())
    return 2;
  auto inbox = attach(*transport, 1, [&](const Envelope& e) {
    if (role != "echo") return;
    Envelope back = e;
    std::swap(back.from, back.to);
    transport->send(std::move(back));
  });
  if (role == "flood") {
    transport->send(numbered(1, 0, 0));
    const FrozenTensor data = uninitialised(kLarge);
    for (int i = 1; i <= kFloods; ++i) transport->send(with_data(numbered(1, 0, i), data));
  }
  if (role == "leave") {
    inbox->wait_messages(1);
    Rng rng(9);
    for (int i = 0; i < kFinalMessages; ++i)
      transport->send(with_data(
          numbered(1, 0, i), random_bits(rng, i + 1 < kFinalMessages ? 100 : 64 << 20, at::kByte)));
    transport.reset();
    return 0;
  }
  inbox->wait_down(0);
  return 0;
}

// Turns a process that was started with a role into the other one, before any test begins.
class OtherProcess : public testing::Environment {
 public:
  void SetUp() override {
    const char* const role = std::getenv("GRAPEVINE_TCP_ROLE");
    if (role != nullptr) std::_Exit(play(role, std::getenv("GRAPEVINE_TCP_ADDRESS")));
  }
};
testing::Environment* const kOtherProcess =
    testing::AddGlobalTestEnvironment(new OtherProcess);  // owned by googletest

// ---- This process: rank 0

class TcpProcess : public testing::Test {
 protected:
  void start(const std::string& role, const TcpOptions& options = loopback()) {
    transport_ = make(options);
    ProcessOptions process;
    process.program = "/proc/self/exe";
    process.environment = {"GRAPEVINE_TCP_ROLE=" + role,
                           "GRAPEVINE_TCP_ADDRESS=" + transport_->address(), "GTEST_OUTPUT"};
    process.timeout = 300s;
    other_ = std::make_unique<Process>(std::vector<std::string>{}, process);
    const auto connected =
        transport_->connect({transport_->address(), ""}, one_each(0, 2), kPatience);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    inbox_ = attach(*transport_, 0);
  }
  void send(Envelope e) { transport_->send(std::move(e)); }
  // The destructor returns, whatever the other process does.
  void expect_end() {
    auto ended = std::async(std::launch::async, [&] { transport_.reset(); });
    ASSERT_EQ(ended.wait_for(kHangDeadline), std::future_status::ready) << "hangs";
  }

  std::shared_ptr<RecordingInbox> inbox_;
  std::unique_ptr<RemoteTransport> transport_;
  std::unique_ptr<Process> other_;
};

TEST_F(TcpProcess, PayloadsOfEverySizeComeBackBitwise) {
  start("echo");
  Rng rng(11);
  std::vector<FrozenTensor> sent;
  for (std::size_t size = 1; size <= kLarge; size *= size < (1 << 20) ? 4 : 16) {
    sent.push_back(random_bits(rng, size, at::kByte));
    send(with_data(numbered(0, 1, static_cast<std::int32_t>(sent.size()) - 1), sent.back()));
  }
  ASSERT_EQ(sent.back().nbytes(), kLarge);
  ASSERT_TRUE(inbox_->wait_messages(sent.size()));
  const auto received = inbox_->messages_from(1);
  EXPECT_TRUE(counts_up(received));
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_TRUE(same_bits(std::get<Chunk>(received[i].payload).data, sent[i]))
        << sent[i].nbytes() << " bytes";
}

TEST_F(TcpProcess, ConcurrentStreamsKeepTheirOrder) {
  constexpr int kStreams = 64;
  constexpr int kMessages = 100;
  start("echo");
  run_threads(kStreams, [&](int stream) {
    Rng rng(static_cast<std::uint64_t>(stream));
    for (int i = 0; i < kMessages; ++i)
      send(with_data(numbered(0, 1, i, stream), random_bits(rng, rng() % 3000, at::kByte)));
  });
  ASSERT_TRUE(inbox_->wait_messages(kStreams * kMessages));
  std::vector<std::vector<Envelope>> streams(kStreams);
  for (const Envelope& e : inbox_->messages_from(1))
    streams[static_cast<std::size_t>(stream_of(e))].push_back(e);
  for (const auto& stream : streams) {
    EXPECT_EQ(stream.size(), static_cast<std::size_t>(kMessages));
    EXPECT_TRUE(counts_up(stream));
  }
}

TEST_F(TcpProcess, ADeathInMidPayloadIsOnePeerDown) {
  start("flood");
  ASSERT_TRUE(inbox_->wait_messages(1));
  for (int i = 0; i < 4; ++i) send(with_data(numbered(0, 1, i), uninitialised(kLarge / 4)));
  other_->signal(SIGKILL);
  ASSERT_TRUE(inbox_->wait_down(1));
  EXPECT_LT(inbox_->message_count(), 1u + kFloods) << "it died too late for this test";
  EXPECT_TRUE(inbox_->arrivals().back().is_down);
  EXPECT_TRUE(counts_up(inbox_->messages_from(1)));
  send(numbered(0, 1, 0));
  EXPECT_GE(transport_->counters(0).messages_dropped, 1u);
  expect_end();
  EXPECT_EQ(inbox_->down_count(1), 1);
}

TEST_F(TcpProcess, ASuspendedPeerDoesNotHoldUpTheEnd) {
  TcpOptions options = loopback();
  options.flush_patience = 200ms;
  start("idle", options);
  other_->signal(SIGSTOP);
  for (int i = 0; i < 4; ++i) send(with_data(numbered(0, 1, i), uninitialised(kLarge / 4)));
  expect_end();
  EXPECT_EQ(inbox_->down_count(1), 0);
}

TEST_F(TcpProcess, APeerThatDiesDuringTheEndDoesNotHoldItUp) {
  start("idle");
  other_->signal(SIGSTOP);
  send(with_data(numbered(0, 1, 0), uninitialised(kLarge)));
  auto ended = std::async(std::launch::async, [&] { transport_.reset(); });
  other_->signal(SIGKILL);
  EXPECT_EQ(ended.wait_for(kHangDeadline), std::future_status::ready);
}

TEST_F(TcpProcess, HeartbeatsFindASuspendedPeer) {
  TcpOptions options = loopback();
  options.heartbeat = 50ms;
  options.heartbeat_timeout = 500ms;
  start("idle", options);
  other_->signal(SIGSTOP);
  ASSERT_TRUE(inbox_->wait_down(1));
  expect_end();
  EXPECT_EQ(inbox_->down_count(1), 1);
}

// Both directions are full when the other process ends.
TEST_F(TcpProcess, ACleanEndFlushesWhatWasSent) {
  start("leave");
  const FrozenTensor noise = uninitialised(1 << 20);
  for (int i = 0; i < 200; ++i) send(with_data(numbered(0, 1, i), noise));
  ASSERT_TRUE(inbox_->wait_down(1));
  const auto received = inbox_->messages_from(1);
  ASSERT_EQ(received.size(), static_cast<std::size_t>(kFinalMessages));
  EXPECT_TRUE(counts_up(received));
  Rng rng(9);
  for (const Envelope& e : received) {
    const FrozenTensor& data = std::get<Chunk>(e.payload).data;
    EXPECT_TRUE(same_bits(data, random_bits(rng, data.nbytes(), at::kByte)));
  }
  EXPECT_EQ(other_->wait().exit_code, 0);
}

}  // namespace tcp_process_test
}  // namespace grapevine::conformance
