// The shared-memory transport between real processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "net/shm/shm_arena.hpp"
#include "tests/conformance/process_suite.hpp"
#include "tests/net/shm/shm_world.hpp"

namespace grapevine::conformance {
namespace shm_process_test {

using namespace std::chrono_literals;

struct ShmProcessWire {
  using Options = ShmOptions;
  static constexpr char kName[] = "SHM";
  static constexpr std::size_t kLarge = std::size_t{64} << 20;
  static constexpr char kSilence[] = "no sign of life";
  static FrozenTensor flood(int number) { return filled(kLarge, number); }
  static Options options() { return {}; }
  static std::unique_ptr<RemoteTransport> make(const Options& options) { return make_shm(options); }
};
constexpr std::size_t kLarge = ShmProcessWire::kLarge;

const bool kOtherProcess = become_other_process<ShmProcessWire>();
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, ProcessSuite, ShmProcessWire);

class ShmProcess : public ProcessSuite<ShmProcessWire> {};

std::uint64_t lent() {
  shm::Arena& arena = *shm::Arena::of_process();
  arena.collect();
  return arena.bytes() - arena.free_bytes();
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

// No name of any memory is left, however processes end.
TEST_F(ShmProcess, NothingIsLeftInDevShm) {
  const auto files = [] {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      const std::string name = entry.path().filename().string();
      count += name.find("grapevine") != std::string::npos;
    }
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
