// The shared-memory transport between real processes: this binary starts itself again as the other
// one.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "net/shm/shm_arena.hpp"
#include "tests/apps/process.hpp"
#include "tests/net/shm/shm_world.hpp"

namespace grapevine::conformance {
namespace shm_process_test {

using namespace std::chrono_literals;

constexpr std::size_t kLarge = std::size_t{64} << 20;
constexpr int kFloods = 16;          // large messages of "flood"
constexpr int kFinalMessages = 200;  // messages of "leave", all but the last one small

Envelope with_data(Envelope e, FrozenTensor data) {
  std::get<Chunk>(e.payload).data = std::move(data);
  return e;
}

FrozenTensor filled(std::size_t bytes, int value) {
  at::Tensor t = at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  std::memset(t.data_ptr(), value, bytes);
  return FrozenTensor::freeze(std::move(t));
}

// ---- The other process: rank 1 of 2

int play(const std::string& role, const std::string& address) {
  auto transport = make_shm();
  if (!transport->connect({address, transport->address()}, one_each(1, 2), kPatience).ok())
    return 2;
  auto inbox = attach(*transport, 1, [&](const Envelope& e) {
    if (role != "echo") return;
    Envelope back = e;
    std::swap(back.from, back.to);
    transport->send(std::move(back));
  });
  if (role == "flood")
    for (int i = 0; i <= kFloods; ++i)
      transport->send(with_data(numbered(1, 0, i), filled(i == 0 ? 0 : kLarge, i)));
  if (role == "leave") {
    inbox->wait_messages(1);
    Rng rng(9);
    for (int i = 0; i < kFinalMessages; ++i)
      transport->send(with_data(
          numbered(1, 0, i), random_bits(rng, i + 1 < kFinalMessages ? 100 : 64 << 20, at::kByte)));
    inbox.reset();
    transport.reset();
    return 0;
  }
  inbox->wait_down(0);
  while (role == "keep") ::pause();
  return 0;
}

// Turns a process that was started with a role into the other one, before any test begins.
class OtherProcess : public testing::Environment {
 public:
  void SetUp() override {
    const char* const role = std::getenv("GRAPEVINE_SHM_ROLE");
    if (role != nullptr) std::_Exit(play(role, std::getenv("GRAPEVINE_SHM_ADDRESS")));
  }
};
testing::Environment* const kOtherProcess =
    testing::AddGlobalTestEnvironment(new OtherProcess);  // owned by googletest

// ---- This process: rank 0

class ShmProcess : public testing::Test {
 protected:
  void start(const std::string& role, const ShmOptions& options = {}) {
    transport_ = make_shm(options);
    ProcessOptions process;
    process.program = "/proc/self/exe";
    process.environment = {"GRAPEVINE_SHM_ROLE=" + role,
                           "GRAPEVINE_SHM_ADDRESS=" + transport_->address(), "GTEST_OUTPUT"};
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

std::uint64_t lent() {
  shm::Arena& arena = *shm::Arena::of_process();
  arena.collect();
  return arena.bytes() - arena.free_bytes();
}

TEST_F(ShmProcess, PayloadsOfEverySizeComeBackBitwise) {
  start("echo");
  Rng rng(11);
  std::vector<FrozenTensor> sent;
  for (std::size_t size = 1; size <= kLarge; size *= size < (1 << 20) ? 4 : 16) {
    sent.push_back(random_bits(rng, size, at::kByte));
    send(with_data(numbered(0, 1, static_cast<std::int32_t>(sent.size()) - 1), sent.back()));
  }
  ASSERT_TRUE(inbox_->wait_messages(sent.size()));
  const auto received = inbox_->messages_from(1);
  EXPECT_TRUE(counts_up(received));
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_TRUE(same_bits(std::get<Chunk>(received[i].payload).data, sent[i]))
        << sent[i].nbytes() << " bytes";
}

TEST_F(ShmProcess, ConcurrentStreamsKeepTheirOrder) {
  constexpr int kStreams = 64;
  constexpr int kMessages = 100;
  start("echo");
  run_threads(kStreams, [&](int stream) {
    Rng rng(static_cast<std::uint64_t>(stream));
    for (int i = 0; i < kMessages; ++i)
      send(with_data(numbered(0, 1, i, stream), random_bits(rng, rng() % 30000, at::kByte)));
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

// The memory of the dead process stays readable for as long as somebody reads it.
TEST_F(ShmProcess, WhatADeadProcessHadSentStaysReadable) {
  start("flood");
  ASSERT_TRUE(inbox_->wait_messages(4));
  other_->signal(SIGKILL);
  ASSERT_TRUE(inbox_->wait_down(1));
  other_->wait();
  EXPECT_TRUE(inbox_->arrivals().back().is_down);
  EXPECT_EQ(inbox_->down_count(1), 1);
  EXPECT_NE(inbox_->down_reason(1), "");
  const auto received = inbox_->messages_from(1);
  EXPECT_TRUE(counts_up(received));
  for (std::size_t i = 1; i < received.size(); ++i) {
    const FrozenTensor& data = std::get<Chunk>(received[i].payload).data;
    ASSERT_EQ(data.nbytes(), kLarge);
    const auto* bytes = data.data<std::uint8_t>();
    for (std::size_t b = 0; b < kLarge; b += 4095) ASSERT_EQ(bytes[b], i);
  }
  expect_end();
}

// What a reader had is used again once it is dead, and not while it lives.
TEST_F(ShmProcess, TheMemoryOfADeadReaderIsUsedAgain) {
  start("keep");
  const std::uint64_t before = lent();
  for (int i = 0; i < 8; ++i) send(with_data(numbered(0, 1, i), filled(1 << 20, i)));
  EXPECT_EQ(lent(), before + (8 << 20));
  transport_->process_down(1);
  ASSERT_TRUE(inbox_->wait_down(1));
  EXPECT_EQ(lent(), before + (8 << 20)) << "it still reads";
  other_->signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return lent() == before; }));
}

TEST_F(ShmProcess, ADeathIsOnePeerDownAndNothingIsSentAfterIt) {
  start("idle");
  for (int i = 0; i < 3; ++i) send(with_data(numbered(0, 1, i), filled(kLarge, i)));
  other_->signal(SIGKILL);
  ASSERT_TRUE(inbox_->wait_down(1));
  send(numbered(0, 1, 3));
  EXPECT_GE(transport_->counters(0).messages_dropped, 1u);
  expect_end();
  EXPECT_EQ(inbox_->down_count(1), 1);
}

TEST_F(ShmProcess, ASuspendedPeerDoesNotHoldUpTheEnd) {
  ShmOptions options;
  options.flush_patience = 200ms;
  start("idle", options);
  other_->signal(SIGSTOP);
  for (int i = 0; i < 8; ++i) send(with_data(numbered(0, 1, i), filled(kLarge, i)));
  expect_end();
  EXPECT_EQ(inbox_->down_count(1), 0);
}

TEST_F(ShmProcess, HeartbeatsFindASuspendedPeer) {
  ShmOptions options;
  options.heartbeat = 50ms;
  options.heartbeat_timeout = 500ms;
  start("idle", options);
  other_->signal(SIGSTOP);
  ASSERT_TRUE(inbox_->wait_down(1));
  EXPECT_NE(inbox_->down_reason(1).find("no sign of life"), std::string::npos);
  expect_end();
  EXPECT_EQ(inbox_->down_count(1), 1);
}

// Both directions are full when the other process ends.
TEST_F(ShmProcess, ACleanEndFlushesWhatWasSent) {
  start("leave");
  const FrozenTensor noise = filled(1 << 20, 1);
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

// No name of any memory is left, however processes end.
TEST_F(ShmProcess, NothingIsLeftInDevShm) {
  const auto files = [] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      count += entry.path().string().find("grapevine") != std::string::npos;
    return count;
  };
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const std::size_t before = files();
  start("flood");
  ASSERT_TRUE(inbox_->wait_messages(2));
  EXPECT_EQ(files(), before);
  other_->signal(SIGKILL);
  ASSERT_TRUE(inbox_->wait_down(1));
  EXPECT_EQ(files(), before);
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A thread that polled would take all of the pause.
TEST_F(ShmProcess, AnIdleTransportSleeps) {
  ShmOptions options;
  options.heartbeat = 500ms;
  start("idle", options);
  send(numbered(0, 1, 0));
  constexpr double kPause = 2;
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kPause));
  EXPECT_LT(cpu_seconds() - before, 0.05 * kPause);
}

}  // namespace shm_process_test
}  // namespace grapevine::conformance
