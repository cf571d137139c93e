// Payloads as large as models are: bit for bit, over every wire. They take gigabytes of memory, and
// are skipped where those are not free.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "net/tcp/tcp.hpp"
#include "net/ucx/ucx.hpp"
#include "tests/net/tcp/tcp_world.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine::conformance {
namespace large_payload_test {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
// What is sent and what is received, and room for whoever else uses this machine.
constexpr std::int64_t kMemoryNeeded = 6 * kGiB;
constexpr int kTimeoutRounds = 5;  // of kHangDeadline each: a busy machine copies slowly

// MemAvailable of /proc/meminfo, in bytes; 0 where there is none.
std::int64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  for (std::int64_t kilobytes = 0; file >> key;)
    if (key == "MemAvailable:" && file >> kilobytes) return kilobytes * 1024;
  return 0;
}

// Words that are all different, so that a piece at a wrong place shows.
FrozenTensor counted(std::int64_t bytes, std::uint64_t seed) {
  at::Tensor tensor = at::empty({bytes}, at::kByte);
  auto* to = static_cast<unsigned char*>(tensor.data_ptr());
  for (std::int64_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = (static_cast<std::uint64_t>(i) + seed) * 0x9E3779B97F4A7C15u;
    std::memcpy(to + i, &word, static_cast<std::size_t>(std::min<std::int64_t>(8, bytes - i)));
  }
  return FrozenTensor::freeze(std::move(tensor));
}

// From rank 0 of one process to rank 1 of the other, one after the other.
void expect_bitwise(RemoteTransport& from, RemoteTransport& to) {
  const auto sender = attach(from, 0);
  std::uint64_t seed = 1;
  const auto inbox = attach(to, 1);
  std::size_t count = 0;
  for (const std::int64_t bytes : {64 * kMiB - 1, 64 * kMiB, 64 * kMiB + 1, kGiB + 3}) {
    SCOPED_TRACE(std::to_string(bytes) + " bytes");
    const FrozenTensor sent = counted(bytes, ++seed);
    Envelope envelope;
    envelope.from = 0;
    envelope.to = 1;
    Chunk chunk;
    chunk.data = sent;
    envelope.payload = chunk;
    from.send(std::move(envelope));
    bool arrived = false;
    ++count;
    for (int round = 0; round < kTimeoutRounds && !arrived; ++round)
      arrived = inbox->wait_messages(count);
    ASSERT_TRUE(arrived);
    const auto received = std::get<Chunk>(inbox->messages_from(0).back().payload).data;
    ASSERT_EQ(received.nbytes(), sent.nbytes());
    EXPECT_EQ(std::memcmp(received.raw(), sent.raw(), sent.nbytes()), 0);
  }
  EXPECT_EQ(inbox->down_count(0), 0);
}

class LargePayload : public testing::Test {
 protected:
  void SetUp() override {
    const std::int64_t available = free_memory();
    if (available < kMemoryNeeded)
      GTEST_SKIP() << "needs " << kMemoryNeeded / kGiB << " GiB of memory, " << available / kGiB
                   << " GiB are free";
  }
};

TEST_F(LargePayload, ArrivesBitwiseOverTcp) {
  TcpWorld world(2, 1);
  expect_bitwise(world.endpoint(0), world.endpoint(1));
}

void expect_bitwise_over_ucx(bool same_host) {
  std::vector<std::unique_ptr<RemoteTransport>> ends;
  std::vector<std::string> addresses;
  for (int end = 0; end < 2; ++end) {
    auto made = make_ucx_transport(loopback_options());
    ASSERT_TRUE(made.ok()) << made.error().message;
    ends.push_back(std::move(*made));
    addresses.push_back(ends.back()->address());
  }
  run_threads(2, [&](int end) {
    const auto connected = ends[static_cast<std::size_t>(end)]->connect(
        addresses, placement(end, 2, same_host), kHangDeadline);
    EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
  });
  expect_bitwise(*ends[0], *ends[1]);
}

TEST_F(LargePayload, ArrivesBitwiseOverUcxInOneMachine) {
  if (!ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  expect_bitwise_over_ucx(true);
}

TEST_F(LargePayload, ArrivesBitwiseOverUcxBetweenMachines) {
  if (!ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  expect_bitwise_over_ucx(false);
}

}  // namespace large_payload_test
}  // namespace grapevine::conformance
