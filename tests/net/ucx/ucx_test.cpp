// The UCX transport between ranks of one process: conformance over both kinds of links. Between
// processes: ucx_process_test.cpp.
#include "net/ucx/ucx.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/transport_suite.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

namespace grapevine::conformance {
namespace ucx_test {

#ifdef GRAPEVINE_UCX

// One transport per rank, as if each lived in a process of its own.
template <bool kSameHost>
class UcxWorld {
 public:
  explicit UcxWorld(std::int32_t world_size) {
    std::vector<std::string> addresses;
    for (Rank r = 0; r < world_size; ++r) {
      Expected<std::unique_ptr<RemoteTransport>> made = make_ucx_transport(loopback_options());
      GRAPEVINE_CHECK(made.ok(), made.error().message);
      transports_.push_back(*std::move(made));
      addresses.push_back(transports_.back()->address());
    }
    run_threads(world_size, [&](int p) {
      const Expected<void> connected = transports_[static_cast<std::size_t>(p)]->connect(
          addresses, placement(p, world_size, kSameHost), kHangDeadline);
      EXPECT_TRUE(connected.ok()) << connected.error().message;
    });
  }
  Transport& endpoint(Rank rank) { return *transports_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

class UcxSameHostWorld : public UcxWorld<true> {
  using UcxWorld::UcxWorld;
};
class UcxOtherHostWorld : public UcxWorld<false> {
  using UcxWorld::UcxWorld;
};

// ---- Returning

constexpr JobToken kJob = {std::byte{7}, std::byte{1}};

// Transports of processes with a rank each.
class UcxReturn : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::int32_t kProcesses = 4;

  UcxReturn() {
    for (int p = 0; p < kProcesses; ++p) make(p);
    run_threads(kProcesses, [&](int p) {
      const Expected<void> connected = process(p).connect(
          addresses_, placement(p, kProcesses, GetParam()), kHangDeadline, {kJob, nullptr});
      EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
    });
    for (int p = 0; p < kProcesses; ++p) attach(p);
  }

  void make(int p) {
    auto made = make_ucx_transport(loopback_options());
    GRAPEVINE_CHECK(made.ok(), made.error().message);
    transports_[static_cast<std::size_t>(p)] = *std::move(made);
    addresses_[static_cast<std::size_t>(p)] = process(p).address();
  }
  RemoteTransport& process(int p) { return *transports_[static_cast<std::size_t>(p)]; }
  RecordingInbox& inbox(int p) { return *inboxes_[static_cast<std::size_t>(p)]; }
  void attach(int p) {
    inboxes_[static_cast<std::size_t>(p)] = std::make_shared<RecordingInbox>(nullptr);
    EXPECT_TRUE(process(p).attach(p, inboxes_[static_cast<std::size_t>(p)]).ok());
  }
  void end(int p) { transports_[static_cast<std::size_t>(p)].reset(); }
  void expect(int back, std::initializer_list<int> others) {
    for (const int p : others)
      process(p).expect_process(back, GetParam() ? "here" : "host" + std::to_string(back),
                                addresses_[static_cast<std::size_t>(back)]);
  }
  Expected<void> join(int p, const std::vector<std::int32_t>& absent,
                      Duration timeout = kHangDeadline,
                      const std::function<bool(std::int32_t)>& lost = {}) {
    return process(p).connect(addresses_, placement(p, kProcesses, GetParam()), timeout,
                              {kJob, nullptr, true, absent, lost});
  }

  std::vector<std::string> addresses_ = std::vector<std::string>(kProcesses);
  std::vector<std::unique_ptr<RemoteTransport>> transports_{kProcesses};
  std::vector<std::shared_ptr<RecordingInbox>> inboxes_{kProcesses};
};

INSTANTIATE_TEST_SUITE_P(Hosts, UcxReturn, testing::Bool(),
                         [](const auto& info) { return info.param ? "Same" : "Other"; });

// Under the same index: its ranks are up again, and the next loss is reported anew. The others
// may learn of it only when it waits for them already. Process 3 stays lost, and is not awaited.
TEST_P(UcxReturn, ALostProcessReturnsAgainAndAgain) {
  end(3);
  for (std::ptrdiff_t time = 1; time <= 3; ++time) {
    end(1);
    for (const int p : {0, 2}) {
      ASSERT_TRUE(inbox(p).wait_down(1, time));
      ASSERT_TRUE(inbox(p).wait_down(3));
      for (const int lost : {1, 3}) process(p).process_down(lost);
    }
    make(1);
    std::thread late([&] { expect(1, {0, 2}); });
    const Expected<void> joined = join(1, {3});
    late.join();
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    for (const int p : {0, 2}) {
      EXPECT_TRUE(process(p).is_up(1));
      process(p).send(numbered(p, 1, 0));  // at once
    }
    attach(1);
    for (const int p : {0, 2}) {
      process(1).send(numbered(1, p, 0));
      ASSERT_TRUE(inbox(p).wait_messages(static_cast<std::size_t>(time))) << "process " << p;
    }
    ASSERT_TRUE(inbox(1).wait_messages(2));
    EXPECT_EQ(inbox(1).down_count(3), 0) << "its loss was known before";
  }
}

// Once the run knows that it is lost, the one that joins does without it. It may return later.
TEST_P(UcxReturn, AProcessThatIsLostWhileAnotherJoinsIsNotAwaited) {
  for (const int lost : {1, 3}) end(lost);
  for (const int p : {0, 2}) {
    for (const int lost : {1, 3}) ASSERT_TRUE(inbox(p).wait_down(lost));
  }
  make(1);
  expect(1, {0, 2});
  std::atomic<int> polls{0};
  const Expected<void> joined =
      join(1, {}, kHangDeadline, [&](std::int32_t process) { return process == 3 && ++polls > 2; });
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_FALSE(process(1).is_up(3));
  attach(1);
  for (const int p : {0, 2}) {
    process(p).send(numbered(p, 1, 0));
    process(1).send(numbered(1, p, 0));
    ASSERT_TRUE(inbox(p).wait_messages(1)) << "process " << p;
  }
  ASSERT_TRUE(inbox(1).wait_messages(2));
  process(1).process_down(3);
  // UCX may have detected the loss first.
  const auto reports = inbox(1).down_count(3);
  EXPECT_LE(reports, 1);
  make(3);
  expect(3, {0, 1, 2});
  const Expected<void> returned = join(3, {});
  ASSERT_TRUE(returned.ok()) << returned.error().message;
  attach(3);
  process(1).send(numbered(1, 3, 1));
  ASSERT_TRUE(inbox(3).wait_messages(1));
  end(3);
  ASSERT_TRUE(inbox(1).wait_down(3, reports + 1));
}

// Not where it is not expected, nor where another one is. The run may expect one that ends before
// the others reach it, and then another one.
TEST_P(UcxReturn, AnyOtherProcessIsRefused) {
  end(1);
  for (const int p : {0, 2, 3}) ASSERT_TRUE(inbox(p).wait_down(1));
  make(1);
  const Expected<void> unexpected = join(1, {}, std::chrono::milliseconds(500));
  ASSERT_FALSE(unexpected.ok());
  EXPECT_EQ(unexpected.error().code, Errc::timeout);
  EXPECT_NE(unexpected.error().message.find("process 0"), std::string::npos);
  end(1);
  expect(1, {0, 2, 3});
  make(1);
  EXPECT_FALSE(join(1, {}, std::chrono::milliseconds(500)).ok());
  for (const int p : {0, 2, 3}) {
    EXPECT_FALSE(process(p).is_up(1));
    EXPECT_EQ(inbox(p).down_count(1), 1) << "it has not been back";
  }
  make(1);
  expect(1, {0, 2, 3});
  EXPECT_TRUE(join(1, {}).ok());
  for (const int p : {0, 2, 3}) EXPECT_TRUE(process(p).is_up(1));
}

// The run has given up a process that never connected, and expects another one.
TEST_P(UcxReturn, AnotherOneMayComeInThePlaceOfASilentOne) {
  end(1);
  for (const int p : {0, 2, 3}) ASSERT_TRUE(inbox(p).wait_down(1));
  make(1);
  expect(1, {0, 2, 3});
  const std::unique_ptr<RemoteTransport> silent = std::move(transports_[1]);
  make(1);
  expect(1, {0, 2, 3});
  EXPECT_TRUE(join(1, {}).ok());
  for (const int p : {0, 2, 3}) EXPECT_TRUE(process(p).is_up(1));
}

// Messages that a member sends before the other end has connected do not use the new link, and no
// end waits for them.
TEST_P(UcxReturn, AMemberMayLeaveBeforeTheOtherConnects) {
  for (const int p : {1, 2, 3}) end(p);
  for (const int lost : {1, 2, 3}) ASSERT_TRUE(inbox(0).wait_down(lost));
  make(1);
  expect(1, {0});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it connects
  process(0).detach(0);
  ASSERT_TRUE(eventually([&] { return process(0).queued_bytes() == 0; }));
  ASSERT_TRUE(join(1, {2, 3}).ok());
  attach(1);
  end(0);
  ASSERT_TRUE(inbox(1).wait_down(0));
  EXPECT_EQ(inbox(1).down_reason(0), "") << "it has said goodbye";
}

// The others of the job did not know the host of a place that nobody had had.
TEST(UcxJoin, IsOverSharedMemoryOnOneHost) {
  UcxOptions options = loopback_options();
  options.tls = "shm";
  auto first = make_ucx_transport(options), second = make_ucx_transport(options);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::vector<std::string> addresses = {(*first)->address(), (*second)->address()};
  Placement where = placement(0, 2, true);
  where.host_of[1].clear();
  ASSERT_TRUE((*first)->connect({"", ""}, where, kHangDeadline, {kJob, nullptr, false, {1}}).ok());
  (*first)->expect_process(1, "here", (*second)->address());
  const auto joined = (*second)->connect(addresses, placement(1, 2, true), kHangDeadline,
                                         {kJob, nullptr, true, {}});
  ASSERT_TRUE(joined.ok()) << joined.error().message;
}

INSTANTIATE_TYPED_TEST_SUITE_P(UcxSameHost, TransportSuite, UcxSameHostWorld);
INSTANTIATE_TYPED_TEST_SUITE_P(UcxOtherHost, TransportSuite, UcxOtherHostWorld);

TEST(Ucx, CountsTheBytesThatWait) {
  UcxOtherHostWorld world(2);
  expect_queue_is_counted(world.endpoint(0), world.endpoint(1));
}

TEST(Ucx, CountsWithoutALock) {
  UcxOtherHostWorld world(2);
  expect_count_takes_no_lock(world.endpoint(0), world.endpoint(1));
}

#else

TEST(Ucx, SaysWhatIsMissingWhereItIsNotBuiltIn) {
  EXPECT_FALSE(ucx_built_in());
  const auto made = make_ucx_transport({});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::bad_input);
  EXPECT_NE(made.error().message.find("libucx-dev"), std::string::npos);
}

#endif

}  // namespace ucx_test
}  // namespace grapevine::conformance
