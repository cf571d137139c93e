// The UCX transport between processes: large payloads, and every way in which the other side ends.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/apps/cluster/cut_link.hpp"
#include "tests/apps/process.hpp"
#include "tests/conformance/transport_suite.hpp"
#include "tests/net/ucx/tracked_memory.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine::conformance {
namespace ucx_process_test {

// This process is rank 0, ucx_peer is rank 1. The parameter: both on one host (shared memory), or
// as if on two.
class UcxProcesses : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!ucx_built_in()) GTEST_SKIP() << "built without UCX: install libucx-dev";
  }
  bool same_host() const { return GetParam(); }

  void start(const std::string& scenario, UcxOptions options = loopback_options(),
             RecordingInbox::Hook hook = nullptr) {
    ProcessOptions process_options;
    process_options.program = GRAPEVINE_UCX_PEER;
    process_options.timeout = std::chrono::minutes(5);
    peer_ = std::make_unique<Process>(
        std::vector<std::string>{folder_.path().string(), "1", "2", same_host() ? "same" : "other",
                                 scenario},
        process_options);
    auto made = FileRendezvous(folder_.path()).meet(options, placement(0, 2, same_host()));
    ASSERT_TRUE(made.ok()) << made.error().message;
    transport_ = *std::move(made);
    inbox_ = std::make_shared<RecordingInbox>(std::move(hook));
    ASSERT_TRUE(transport_->attach(0, inbox_).ok());
  }
  void send(std::int32_t index, const FrozenTensor& data, std::int32_t stream = 0) {
    Envelope e = numbered(0, 1, index, stream);
    std::get<Chunk>(e.payload).data = data;
    transport_->send(std::move(e));
  }
  // Nobody reports it: the connection breaks, or UCX looks whether the process is there.
  void peer_is_dead() {
    EXPECT_TRUE(inbox_->wait_down(1));
    EXPECT_EQ(inbox_->down_count(1), 1);
    EXPECT_TRUE(inbox_->arrivals().back().is_down) << "a message after its sender's peer_down";
    send(0, {});
    EXPECT_EQ(transport_->counters(0).messages_dropped, 1u);
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Process> peer_;
  std::shared_ptr<RecordingInbox> inbox_;
  std::unique_ptr<RemoteTransport> transport_;
};

INSTANTIATE_TEST_SUITE_P(Hosts, UcxProcesses, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "same" : "other");
});

TEST_P(UcxProcesses, PayloadsOfAllSizesComeBackBitwise) {
  start("echo");
  Rng rng(11);
  std::vector<FrozenTensor> sent;
  for (const std::size_t size : {1, 100, 8000, 100'000, 1'000'003, 25'000'000, 256 << 20})
    sent.push_back(random_bits(rng, size, at::kByte));
  for (std::size_t i = 0; i < sent.size(); ++i) send(static_cast<std::int32_t>(i), sent[i]);
  ASSERT_TRUE(inbox_->wait_messages(sent.size()));
  const auto received = inbox_->messages_from(1);
  EXPECT_TRUE(counts_up(received));
  for (std::size_t i = 0; i < sent.size(); ++i)
    EXPECT_TRUE(same_bits(std::get<Chunk>(received[i].payload).data, sent[i]))
        << sent[i].nbytes() << " bytes";
}

TEST_P(UcxProcesses, ConcurrentStreamsKeepTheirOrderAndBits) {
  constexpr int kStreams = 64;
  constexpr int kMessages = 40;
  start("echo");
  std::vector<std::vector<FrozenTensor>> sent(kStreams);
  run_threads(kStreams, [&](int stream) {
    Rng rng(static_cast<std::uint64_t>(stream));
    for (int i = 0; i < kMessages; ++i) {
      sent[stream].push_back(random_bits(rng, rng() % (i % 10 == 0 ? 600'000 : 2000), at::kByte));
      send(i, sent[stream].back(), stream);
    }
  });
  ASSERT_TRUE(inbox_->wait_messages(kStreams * kMessages));
  std::vector<std::vector<Envelope>> streams(kStreams);
  for (const Envelope& e : inbox_->messages_from(1)) streams[stream_of(e)].push_back(e);
  for (int stream = 0; stream < kStreams; ++stream) {
    ASSERT_EQ(streams[stream].size(), static_cast<std::size_t>(kMessages));
    EXPECT_TRUE(counts_up(streams[stream])) << "stream " << stream;
    for (int i = 0; i < kMessages; ++i)
      EXPECT_TRUE(same_bits(std::get<Chunk>(streams[stream][i].payload).data, sent[stream][i]))
          << "stream and seed " << stream << ", message " << i;
  }
}

TEST_P(UcxProcesses, WhoEndsInOrderIsHeardToTheEnd) {
  start("leave");
  ASSERT_TRUE(inbox_->wait_down(1));
  const auto messages = inbox_->messages_from(1);
  EXPECT_EQ(messages.size(), static_cast<std::size_t>(kLeaving));
  EXPECT_TRUE(counts_up(messages));
  EXPECT_TRUE(inbox_->arrivals().back().is_down);
  EXPECT_EQ(peer_->wait().exit_code, 0) << peer_->wait().describe();
}

TEST_P(UcxProcesses, EndingTellsTheOtherProcess) {
  start("sink");
  Rng rng(12);
  send(0, random_bits(rng, kLargeBytes, at::kByte));
  transport_.reset();
  EXPECT_EQ(peer_->wait().exit_code, 0) << peer_->wait().describe();
  EXPECT_NE(peer_->so_far().out.find("taken"), std::string::npos) << "what was sent last is lost";
}

TEST_P(UcxProcesses, AReceiverIsKilledWhileItTakesPayload) {
  start("sink");
  Rng rng(13);
  const FrozenTensor data = random_bits(rng, kLargeBytes, at::kByte);
  for (int i = 0; i < 500; ++i) send(i, data);
  ASSERT_TRUE(peer_->wait_for_output("taken"));
  peer_->signal(SIGKILL);
  peer_->wait();
  peer_is_dead();
  transport_.reset();
}

TEST_P(UcxProcesses, ASenderIsKilledWhileItSendsPayload) {
  std::promise<void> first;
  start("flood", loopback_options(), [&](const Envelope& e) {
    if (index_of(e) == 0) first.set_value();
  });
  ASSERT_EQ(first.get_future().wait_for(kHangDeadline), std::future_status::ready);
  peer_->signal(SIGKILL);
  peer_->wait();
  peer_is_dead();
  EXPECT_TRUE(counts_up(inbox_->messages_from(1)));
  transport_.reset();
}

// UCX may notice it while this process asks it for the next payload, or between two payloads: each
// round is at another moment.
TEST(UcxCutLink, IsLostWhileItsPayloadsArrive) {
  if (!ucx_built_in()) GTEST_SKIP() << "built without UCX: install libucx-dev";
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const TemporaryDirectory folder;
    ProcessOptions options;
    options.program = GRAPEVINE_UCX_PEER;
    options.timeout = std::chrono::minutes(5);
    Process peer({folder.path().string(), "1", "2", "other", "stream"}, options);
    auto made = FileRendezvous(folder.path()).meet(loopback_options(), placement(0, 2, false));
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto inbox = std::make_shared<RecordingInbox>();
    ASSERT_TRUE((*made)->attach(0, inbox).ok());
    ASSERT_TRUE(inbox->wait_messages(static_cast<std::size_t>(1 + 7 * round)));
    ASSERT_GT(cluster_test::cut_links(::getpid(), peer.pid()), 0) << "round " << round;
    ASSERT_TRUE(inbox->wait_down(1)) << "round " << round;
    EXPECT_TRUE(counts_up(inbox->messages_from(1))) << "round " << round;
    EXPECT_TRUE(inbox->arrivals().back().is_down) << "round " << round;
    peer.signal(SIGKILL);
  }
}

// Processes die at every moment of their join: no other process ends with them. UCX 1.13 would end
// a process whose answer to such a one is on its way.
TEST_P(UcxProcesses, AProcessMayDieAsItJoins) {
  auto made = make_ucx_transport(loopback_options());
  ASSERT_TRUE(made.ok()) << made.error().message;
  const FileRendezvous files(folder_.path());
  files.publish(0, (*made)->address());
  ConnectOptions alone;
  alone.absent = {1};
  const Placement where = placement(0, 2, same_host());
  ASSERT_TRUE((*made)->connect({"", ""}, where, kHangDeadline, alone).ok());
  const auto inbox = std::make_shared<RecordingInbox>();
  ASSERT_TRUE((*made)->attach(0, inbox).ok());
  ProcessOptions options;
  options.program = GRAPEVINE_UCX_PEER;
  options.timeout = std::chrono::minutes(5);
  Rng rng(27);
  constexpr int kDeaths = 30;
  for (int time = 0; time <= kDeaths; ++time) {
    SCOPED_TRACE("time " + std::to_string(time));
    files.forget(1);
    Process joining({folder_.path().string(), "1", "2", same_host() ? "same" : "other", "join"},
                    options);
    (*made)->expect_process(1, where.host_of[1], files.address_of(1));
    if (time == kDeaths) {
      ASSERT_TRUE(eventually([&] { return (*made)->is_up(1); }));
      (*made)->send(numbered(0, 1, 0));
      ASSERT_TRUE(inbox->wait_messages(1));
      made->reset();
      EXPECT_EQ(joining.wait().exit_code, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(rng() % 8000));
    joining.signal(SIGKILL);
    joining.wait();
    (*made)->process_down(1);
    ASSERT_TRUE(eventually([&] { return !(*made)->is_up(1); }));
  }
}

// Its memory is not given out again while hardware may write it.
TEST_P(UcxProcesses, ASenderStopsWhileADeviceReceives) {
  const auto memory = std::make_shared<TrackedMemory>(std::vector<bool>{true, false});
  UcxOptions options = loopback_options();
  options.device_memory = memory;
  options.linger = std::chrono::milliseconds(300);
  std::promise<void> first;
  start("flood", options, [&](const Envelope& e) {
    if (index_of(e) == 0) first.set_value();
  });
  ASSERT_EQ(first.get_future().wait_for(kHangDeadline), std::future_status::ready);
  peer_->signal(SIGSTOP);
  transport_.reset();
  const std::size_t received = inbox_->messages_from(1).size();
  if (!same_host() || static_cast<std::size_t>(memory->allocations()) == received)
    GTEST_SKIP() << "UCX has ended each receive, so that nothing writes";
  EXPECT_GT(memory->blocks_in_use(), received);
}

// What was being received into the memory of a device is given up.
TEST_P(UcxProcesses, ASenderIsKilledWhileADeviceReceives) {
  const auto memory = std::make_shared<TrackedMemory>(std::vector<bool>{true, false});
  UcxOptions options = loopback_options();
  options.device_memory = memory;
  std::promise<void> first;
  start("flood", options, [&](const Envelope& e) {
    if (index_of(e) == 0) first.set_value();
  });
  ASSERT_EQ(first.get_future().wait_for(kHangDeadline), std::future_status::ready);
  peer_->signal(SIGKILL);
  peer_->wait();
  peer_is_dead();
  const std::vector<Envelope> received = inbox_->messages_from(1);
  EXPECT_TRUE(counts_up(received));
  EXPECT_TRUE(memory->holds(std::get<Chunk>(received.front().payload).data));
  EXPECT_GE(memory->blocks_in_use(), received.size());
  transport_.reset();
  EXPECT_EQ(memory->blocks_in_use(), received.size());
}

TEST_P(UcxProcesses, ADeathThatIsAlsoReportedIsAnnouncedOnce) {
  start("sink");
  Rng rng(16);
  for (int i = 0; i < 20; ++i) send(i, random_bits(rng, 1 << 20, at::kByte));
  ASSERT_TRUE(peer_->wait_for_output("taken"));
  peer_->signal(SIGKILL);
  transport_->process_down(1);
  transport_->process_down(1);
  peer_->wait();
  peer_is_dead();
  transport_.reset();
  EXPECT_EQ(inbox_->down_count(1), 1);
}

TEST_P(UcxProcesses, AStoppedReceiverHangsNobody) {
  start("sink");
  Rng rng(14);
  const FrozenTensor data = random_bits(rng, kLargeBytes, at::kByte);
  for (int i = 0; i < 500; ++i) send(i, data);
  ASSERT_TRUE(peer_->wait_for_output("taken"));
  peer_->signal(SIGSTOP);
  transport_->process_down(1);
  ASSERT_TRUE(inbox_->wait_down(1));
  EXPECT_EQ(inbox_->down_count(1), 1);
  transport_.reset();
}

TEST_P(UcxProcesses, AStoppedSenderHangsNobody) {
  std::promise<void> first;
  start("flood", loopback_options(), [&](const Envelope& e) {
    if (index_of(e) == 0) first.set_value();
  });
  ASSERT_EQ(first.get_future().wait_for(kHangDeadline), std::future_status::ready);
  peer_->signal(SIGSTOP);
  transport_->process_down(1);
  ASSERT_TRUE(inbox_->wait_down(1));
  transport_.reset();
  EXPECT_EQ(inbox_->down_count(1), 1);
}

// Nobody has noticed: destruction waits for `linger` and no longer.
TEST_P(UcxProcesses, EndingDoesNotWaitForAStoppedProcess) {
  UcxOptions options = loopback_options();
  options.linger = std::chrono::milliseconds(300);
  start("sink", options);
  Rng rng(15);
  const FrozenTensor data = random_bits(rng, kLargeBytes, at::kByte);
  for (int i = 0; i < 500; ++i) send(i, data);
  ASSERT_TRUE(peer_->wait_for_output("taken"));
  peer_->signal(SIGSTOP);
  transport_.reset();
}

// ---- Connecting

std::unique_ptr<RemoteTransport> make(UcxOptions options = loopback_options()) {
  Expected<std::unique_ptr<RemoteTransport>> made = make_ucx_transport(options);
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *std::move(made);
}

void expect_names(const Expected<void>& result, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.ok());
  for (const std::string& word : words)
    EXPECT_NE(result.error().message.find(word), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
}

class UcxConnect : public UcxProcesses {};
INSTANTIATE_TEST_SUITE_P(Hosts, UcxConnect, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "same" : "other");
});

TEST_P(UcxConnect, NamesWhoDoesNotAnswerInTime) {
  const auto first = make();
  const auto silent = make();
  const Expected<void> connected =
      first->connect({first->address(), silent->address()}, placement(0, 2, same_host()),
                     std::chrono::milliseconds(300));
  expect_names(connected, {"process 1", same_host() ? "here" : "host1", std::to_string(getpid())});
  EXPECT_EQ(connected.error().code, Errc::timeout);
}

TEST_P(UcxConnect, NamesWhoIsGone) {
  const auto first = make();
  auto gone = make();
  const std::string address = gone->address();
  gone.reset();
  expect_names(first->connect({first->address(), address}, placement(0, 2, same_host()),
                              std::chrono::seconds(3)),
               {"process 1", same_host() ? "here" : "host1"});
}

TEST_P(UcxConnect, NamesADamagedAddress) {
  const auto other = make();
  for (int damage = 0; damage < 4; ++damage) {
    const auto first = make();
    std::string address = other->address();
    if (damage == 0) address.clear();
    if (damage == 1) address.resize(address.size() - 1);
    if (damage == 2) address[address.size() / 2] ^= 1;
    if (damage == 3) address += "x";
    const Expected<void> connected = first->connect(
        {first->address(), address}, placement(0, 2, same_host()), std::chrono::seconds(3));
    expect_names(connected, {"process 1", same_host() ? "here" : "host1", "address"});
    EXPECT_EQ(connected.error().code, Errc::bad_input);
  }
}

// Whoever is connected first may send at once; it waits for the receiver's attach().
TEST_P(UcxConnect, WhatComesBeforeTheAttachWaits) {
  const auto first = make();
  const auto second = make();
  const std::vector<std::string> addresses = {first->address(), second->address()};
  std::thread other([&] {
    ASSERT_TRUE(second->connect(addresses, placement(1, 2, same_host()), kHangDeadline).ok());
  });
  ASSERT_TRUE(first->connect(addresses, placement(0, 2, same_host()), kHangDeadline).ok());
  ASSERT_TRUE(first->attach(0, std::make_shared<RecordingInbox>()).ok());
  for (int i = 0; i < 100; ++i) first->send(numbered(0, 1, i));
  first->detach(0);
  other.join();
  const auto inbox = std::make_shared<RecordingInbox>();
  ASSERT_TRUE(second->attach(1, inbox).ok());
  ASSERT_TRUE(inbox->wait_down(0));
  EXPECT_EQ(inbox->messages_from(0).size(), 100u);
  EXPECT_TRUE(counts_up(inbox->messages_from(0)));
}

TEST(UcxOptions, UnknownDevicesAreRefusedByName) {
  if (!ucx_built_in()) GTEST_SKIP() << "built without UCX: install libucx-dev";
  UcxOptions options;
  options.net_devices = "no-such-device";
  options.tls = "tcp";
  const auto made = make_ucx_transport(options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("no-such-device"), std::string::npos) << made.error().message;
}

}  // namespace ucx_process_test
}  // namespace grapevine::conformance
