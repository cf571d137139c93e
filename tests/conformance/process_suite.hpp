// What a transport between processes must do, as a typed test suite beside TransportSuite: this
// binary starts itself again as the other process.
//
//   struct MyWire {
//     using Options = …;                             // with heartbeat, heartbeat_timeout and
//                                                    // flush_timeout
//     static constexpr char kName[] = "MY";          // of its variables in the environment
//     static constexpr std::size_t kLarge = …;       // bytes, more than the system takes at once
//     static constexpr char kSilence[] = "…";        // in the reason for a suspended peer
//     static FrozenTensor flood(int number);         // a message of kLarge
//     static Options options();
//     static std::unique_ptr<RemoteTransport> make(const Options& options);
//   };
//   const bool kOther = become_other_process<MyWire>();
//   INSTANTIATE_TYPED_TEST_SUITE_P(My, ProcessSuite, MyWire);
#pragma once
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/process.hpp"
#include "tests/conformance/transport_suite.hpp"
#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {

inline constexpr int kFloods = 16;          // large messages of "flood", after a small one
inline constexpr int kFinalMessages = 200;  // messages of "leave", all but the last one small
inline constexpr std::size_t kFinalBytes = std::size_t{64} << 20;

inline Envelope with_data(Envelope e, FrozenTensor data) {
  std::get<Chunk>(e.payload).data = std::move(data);
  return e;
}

// The pages are the process's own: a copy of them takes as long as one of any others.
inline FrozenTensor filled(std::size_t bytes, int value) {
  at::Tensor t = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  std::memset(t.data_ptr(), value, bytes);
  return FrozenTensor::freeze(std::move(t));
}

// ---- The other process: rank 1 of 2

// echo: sends everything back; flood: sends large messages; leave: sends and ends; keep: does not
// end; else it receives.
template <class Wire>
int play(const std::string& role, const std::string& address) {
  auto transport = Wire::make(Wire::options());
  if (!transport->connect({address, transport->address()}, one_each(1, 2), kTimeout).ok()) return 2;
  auto inbox = attach(*transport, 1, [&](const Envelope& e) {
    if (role != "echo") return;
    Envelope back = e;
    std::swap(back.from, back.to);
    transport->send(std::move(back));
  });
  if (role == "flood")
    for (int i = 0; i <= kFloods; ++i)
      transport->send(with_data(numbered(1, 0, i), i == 0 ? FrozenTensor() : Wire::flood(i)));
  if (role == "leave") {
    inbox->wait_messages(1);
    Rng rng(9);
    for (int i = 0; i < kFinalMessages; ++i)
      transport->send(
          with_data(numbered(1, 0, i),
                    random_bits(rng, i + 1 < kFinalMessages ? 100 : kFinalBytes, at::kByte)));
    inbox.reset();
    transport.reset();
    return 0;
  }
  inbox->wait_down(0);
  while (role == "keep") ::pause();
  return 0;
}

template <class Wire>
std::string role_variable() {
  return std::string("GRAPEVINE_") + Wire::kName + "_ROLE";
}
template <class Wire>
std::string address_variable() {
  return std::string("GRAPEVINE_") + Wire::kName + "_ADDRESS";
}

// Turns a process that was started with a role into the other one, before any test begins.
template <class Wire>
class OtherProcess : public testing::Environment {
 public:
  void SetUp() override {
    const char* const role = std::getenv(role_variable<Wire>().c_str());
    if (role != nullptr)
      std::_Exit(play<Wire>(role, std::getenv(address_variable<Wire>().c_str())));
  }
};
template <class Wire>
bool become_other_process() {
  return testing::AddGlobalTestEnvironment(new OtherProcess<Wire>) != nullptr;  // googletest's
}

// ---- This process: rank 0

template <class Wire>
class ProcessSuite : public testing::Test {
 protected:
  using Options = typename Wire::Options;

  void start(const std::string& role, const Options& options = Wire::options()) {
    transport_ = Wire::make(options);
    ProcessOptions process;
    process.program = "/proc/self/exe";
    process.environment = {role_variable<Wire>() + "=" + role,
                           address_variable<Wire>() + "=" + transport_->address(), "GTEST_OUTPUT"};
    process.timeout = std::chrono::seconds(300);
    other_ = std::make_unique<Process>(std::vector<std::string>{}, process);
    const auto connected =
        transport_->connect({transport_->address(), ""}, one_each(0, 2), kTimeout);
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

TYPED_TEST_SUITE_P(ProcessSuite);

TYPED_TEST_P(ProcessSuite, PayloadsOfEverySizeComeBackBitwise) {
  this->start("echo");
  Rng rng(11);
  std::vector<FrozenTensor> sent;
  for (std::size_t size = 1; size <= TypeParam::kLarge; size *= size < (1 << 20) ? 4 : 16) {
    sent.push_back(random_bits(rng, size, at::kByte));
    const auto number = static_cast<std::int32_t>(sent.size()) - 1;
    this->send(with_data(numbered(0, 1, number), sent.back()));
  }
  ASSERT_GE(sent.back().nbytes(), std::size_t{16} << 20);
  ASSERT_TRUE(this->inbox_->wait_messages(sent.size()));
  const auto received = this->inbox_->messages_from(1);
  EXPECT_TRUE(counts_up(received));
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_TRUE(same_bits(std::get<Chunk>(received[i].payload).data, sent[i]))
        << sent[i].nbytes() << " bytes";
}

TYPED_TEST_P(ProcessSuite, ConcurrentStreamsKeepTheirOrder) {
  constexpr int kStreams = 64;
  constexpr int kMessages = 100;
  this->start("echo");
  run_threads(kStreams, [&](int stream) {
    Rng rng(static_cast<std::uint64_t>(stream));
    for (int i = 0; i < kMessages; ++i)
      this->send(with_data(numbered(0, 1, i, stream), random_bits(rng, rng() % 30000, at::kByte)));
  });
  ASSERT_TRUE(this->inbox_->wait_messages(kStreams * kMessages));
  std::vector<std::vector<Envelope>> streams(kStreams);
  for (const Envelope& e : this->inbox_->messages_from(1))
    streams[static_cast<std::size_t>(stream_of(e))].push_back(e);
  for (const auto& stream : streams) {
    EXPECT_EQ(stream.size(), static_cast<std::size_t>(kMessages));
    EXPECT_TRUE(counts_up(stream));
  }
}

TYPED_TEST_P(ProcessSuite, ADeathIsOnePeerDownAndNothingIsSentAfterIt) {
  this->start("idle");
  const FrozenTensor data = filled(TypeParam::kLarge, 1);
  for (int i = 0; i < 3; ++i) this->send(with_data(numbered(0, 1, i), data));
  this->other_->signal(SIGKILL);
  ASSERT_TRUE(this->inbox_->wait_down(1));
  this->send(numbered(0, 1, 3));
  EXPECT_GE(this->transport_->counters(0).messages_dropped, 1U);
  this->expect_end();
  EXPECT_EQ(this->inbox_->down_count(1), 1);
}

TYPED_TEST_P(ProcessSuite, ASuspendedPeerDoesNotHoldUpTheEnd) {
  auto options = TypeParam::options();
  options.flush_timeout = std::chrono::milliseconds(200);
  this->start("idle", options);
  this->other_->signal(SIGSTOP);
  const FrozenTensor data = filled(TypeParam::kLarge, 1);
  for (int i = 0; i < 8; ++i) this->send(with_data(numbered(0, 1, i), data));
  this->expect_end();
  EXPECT_EQ(this->inbox_->down_count(1), 0);
}

TYPED_TEST_P(ProcessSuite, APeerThatDiesDuringTheEndDoesNotHoldItUp) {
  this->start("idle");
  this->other_->signal(SIGSTOP);
  const FrozenTensor data = filled(TypeParam::kLarge, 1);
  for (int i = 0; i < 4; ++i) this->send(with_data(numbered(0, 1, i), data));
  auto ended = std::async(std::launch::async, [&] { this->transport_.reset(); });
  this->other_->signal(SIGKILL);
  EXPECT_EQ(ended.wait_for(kHangDeadline), std::future_status::ready);
}

TYPED_TEST_P(ProcessSuite, HeartbeatsFindASuspendedPeer) {
  auto options = TypeParam::options();
  options.heartbeat = std::chrono::milliseconds(50);
  options.heartbeat_timeout = std::chrono::milliseconds(500);
  this->start("idle", options);
  this->other_->signal(SIGSTOP);
  ASSERT_TRUE(this->inbox_->wait_down(1));
  const std::string reason = this->inbox_->down_reason(1);
  EXPECT_NE(reason.find(TypeParam::kSilence), std::string::npos) << reason;
  this->expect_end();
  EXPECT_EQ(this->inbox_->down_count(1), 1);
}

// Both directions are full when the other process ends.
TYPED_TEST_P(ProcessSuite, ACleanEndFlushesWhatWasSent) {
  this->start("leave");
  const FrozenTensor noise = filled(1 << 20, 1);
  for (int i = 0; i < 200; ++i) this->send(with_data(numbered(0, 1, i), noise));
  ASSERT_TRUE(this->inbox_->wait_down(1));
  const auto received = this->inbox_->messages_from(1);
  ASSERT_EQ(received.size(), static_cast<std::size_t>(kFinalMessages));
  EXPECT_TRUE(counts_up(received));
  Rng rng(9);
  for (const Envelope& e : received) {
    const FrozenTensor& data = std::get<Chunk>(e.payload).data;
    EXPECT_TRUE(same_bits(data, random_bits(rng, data.nbytes(), at::kByte)));
  }
  EXPECT_EQ(this->other_->wait().exit_code, 0);
}

REGISTER_TYPED_TEST_SUITE_P(ProcessSuite, PayloadsOfEverySizeComeBackBitwise,
                            ConcurrentStreamsKeepTheirOrder,
                            ADeathIsOnePeerDownAndNothingIsSentAfterIt,
                            ASuspendedPeerDoesNotHoldUpTheEnd,
                            APeerThatDiesDuringTheEndDoesNotHoldItUp, HeartbeatsFindASuspendedPeer,
                            ACleanEndFlushesWhatWasSent);

}  // namespace grapevine::conformance
