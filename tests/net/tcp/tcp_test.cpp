#include "net/tcp/tcp.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tcp_listener.hpp"
#include "tests/net/tcp/tcp_world.hpp"

namespace grapevine::conformance {
namespace tcp_test {

using namespace std::chrono_literals;

class OneRankEach : public TcpWorld {
 public:
  explicit OneRankEach(std::int32_t world_size) : TcpWorld(world_size, 1) {}
};
class TwoRanksEach : public TcpWorld {
 public:
  explicit TwoRanksEach(std::int32_t world_size) : TcpWorld(world_size, 2) {}
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, TransportSuite, OneRankEach);
INSTANTIATE_TYPED_TEST_SUITE_P(TcpTwoRanksEach, TransportSuite, TwoRanksEach);

// ---- Attaching

TEST(Tcp, WhatArrivesBeforeAttachWaitsForIt) {
  TcpWorld world(3, 1);
  attach(world.endpoint(0), 0);
  attach(world.endpoint(2), 2);
  for (int i = 0; i < 10; ++i) world.endpoint(0).send(numbered(0, 1, i));
  world.endpoint(0).detach(0);
  world.end(2);
  world.end(0);
  auto late = attach(world.endpoint(1), 1);
  ASSERT_TRUE(late->wait_down(0));
  ASSERT_TRUE(late->wait_down(2));
  EXPECT_EQ(late->message_count(), 10u);
  EXPECT_TRUE(counts_up(late->messages_from(0)));
  for (const Rank peer : {0, 2}) EXPECT_EQ(late->down_count(peer), 1);
}

TEST(Tcp, CountsTheBytesThatWait) {
  TcpWorld world(2, 1);
  expect_queue_is_counted(world.endpoint(0), world.endpoint(1));
}

TEST(Tcp, CountsWithoutALock) {
  TcpWorld world(2, 1);
  expect_count_takes_no_lock(world.endpoint(0), world.endpoint(1));
}

TEST(Tcp, AttachTakesOnlyRanksThatLiveHereAndHaveNotLeft) {
  TcpWorld world(4, 2);
  attach(world.endpoint(0), 0);
  world.endpoint(0).detach(0);
  for (const Rank rank : {2, 0}) {
    const Expected<void> attached =
        world.process(0).attach(rank, std::make_shared<RecordingInbox>());
    ASSERT_FALSE(attached.ok());
    EXPECT_NE(attached.error().message.find("rank " + std::to_string(rank)), std::string::npos);
  }
}

TEST(Tcp, AttachBeforeConnectIsAnError) {
  EXPECT_FALSE(make()->attach(0, std::make_shared<RecordingInbox>()).ok());
}

// ---- Losing processes

TEST(Tcp, AProcessTakesAllItsRanksDownOnce) {
  TcpWorld world(4, 2);
  auto a = attach(world.endpoint(0), 0);
  auto b = attach(world.endpoint(1), 1);
  attach(world.endpoint(2), 2);
  attach(world.endpoint(3), 3);
  world.endpoint(2).detach(2);  // first one rank, then its process
  ASSERT_TRUE(a->wait_down(2));
  EXPECT_EQ(a->down_count(3), 0);
  world.end(1);
  for (const auto& inbox : {a, b}) {
    ASSERT_TRUE(inbox->wait_down(3));
    for (const Rank peer : {2, 3}) EXPECT_EQ(inbox->down_count(peer), 1);
  }
}

TEST(Tcp, AProcessThatWasReportedAsLostIsDownAtOnceAndOnce) {
  TcpWorld world(3, 1);
  auto reporting = attach(world.endpoint(0), 0);
  auto reported = attach(world.endpoint(1), 1);
  auto other = attach(world.endpoint(2), 2);
  world.process(0).process_down(1);
  world.process(0).process_down(1);
  ASSERT_TRUE(reporting->wait_down(1));
  ASSERT_TRUE(reported->wait_down(0)) << "the connection was not closed";
  world.endpoint(0).send(numbered(0, 1, 0));
  world.endpoint(0).send(numbered(0, 2, 0));
  ASSERT_TRUE(other->wait_messages(1));
  EXPECT_EQ(world.endpoint(0).counters(0).messages_dropped, 1u);
  EXPECT_EQ(reporting->down_count(1), 1);
  EXPECT_EQ(other->down_count(1), 0);
}

TEST(Tcp, HeartbeatsKeepASilentConnectionUp) {
  TcpOptions options = loopback();
  options.heartbeat = 20ms;
  options.heartbeat_timeout = 1s;
  TcpWorld world(2, 1, options);
  auto a = attach(world.endpoint(0), 0);
  attach(world.endpoint(1), 1);
  std::this_thread::sleep_for(3s);
  EXPECT_EQ(a->down_count(1), 0);
}

TEST(Tcp, AnInboxThatThrowsDoesNotSilenceItsProcess) {
  TcpWorld world(2, 1);
  attach(world.endpoint(0), 0);
  auto inbox = attach(world.endpoint(1), 1, [](const Envelope& e) {
    if (index_of(e) == 0) throw std::runtime_error("role failed");
  });
  for (int i = 0; i < 3; ++i) world.endpoint(0).send(numbered(0, 1, i));
  EXPECT_TRUE(inbox->wait_messages(3));
}

// ---- Connecting

Error error_of(const Expected<void>& result) {
  EXPECT_FALSE(result.ok());
  return result.ok() ? Error() : result.error();
}

void expect_mentions(const Error& error, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(error.message.find(part), std::string::npos) << part << " in: " << error.message;
  EXPECT_EQ(error.message.find('\n'), std::string::npos);
}

// A port that is taken, so that nobody else gets it, but on which nobody listens.
class DeafPort {
 public:
  explicit DeafPort(bool accepts = false) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_.get(), generic, size), 0);
    EXPECT_EQ(::getsockname(socket_.get(), generic, &size), 0);
    EXPECT_EQ(accepts ? ::listen(socket_.get(), 8) : 0, 0);
    port_ = ntohs(address.sin_port);
  }
  std::string address() const { return tcp::join_address("127.0.0.1", port_); }
  std::uint16_t port() const { return port_; }

 private:
  FileDescriptor socket_;
  std::uint16_t port_ = 0;
};

TEST(Tcp, NobodyListeningIsOneClearErrorWithinTheTimeout) {
  const DeafPort nobody;
  auto transport = make();
  const auto start = tcp::Clock::now();
  const Error error =
      error_of(transport->connect({nobody.address(), transport->address()}, one_each(1, 2), 300ms));
  EXPECT_LT(tcp::Clock::now() - start, kHangDeadline);
  EXPECT_EQ(error.code, Errc::timeout);
  expect_mentions(error, {"process 0", "host0", nobody.address(), "300 ms", "refused"});
}

TEST(Tcp, AListenerThatSaysNothingIsAClearError) {
  const DeafPort mute(true);
  auto transport = make();
  const Error error =
      error_of(transport->connect({mute.address(), transport->address()}, one_each(1, 2), 300ms));
  EXPECT_EQ(error.code, Errc::timeout);
  expect_mentions(error, {"process 0", "host0", mute.address(), "sent nothing"});
}

// A signal that comes while a process waits for the others ends the wait, on either side.
TEST(Tcp, ConnectingCanBeCancelled) {
  const DeafPort mute(true);
  for (const std::int32_t own : {0, 1}) {
    auto transport = make();
    const std::vector<std::string> addresses = {own == 0 ? transport->address() : mute.address(),
                                                own == 0 ? mute.address() : transport->address()};
    int polls = 0;
    const Error error = error_of(transport->connect(addresses, one_each(own, 2), 10min,
                                                    {kJob, [&] { return ++polls > 1; }}));
    EXPECT_EQ(error.code, Errc::failed) << error.message;
    expect_mentions(error, {"asked to stop"});
  }
}

TEST(Tcp, AProcessThatNeverDialsIsAClearError) {
  auto transport = make();
  const Error error =
      error_of(transport->connect({transport->address(), "127.0.0.1:9"}, one_each(0, 2), 300ms));
  EXPECT_EQ(error.code, Errc::timeout);
  expect_mentions(error, {"process 1", "host1", "127.0.0.1:9", "300 ms"});
}

// ---- Returning

// Under the same index, after its loss: at every other process its ranks are up again, and the next
// loss is reported anew. Process 3 was lost before, and is not awaited.
TEST(Tcp, ALostProcessReturns) {
  for (const std::int32_t back : {1, 0}) {
    TcpWorld world(4, 1);
    std::map<Rank, std::shared_ptr<RecordingInbox>> inboxes;
    for (Rank r = 0; r < 4; ++r) inboxes[r] = attach(world.endpoint(r), r);
    const Rank near = back == 0 ? 1 : 0;
    world.end(3);
    world.end(back);
    for (const Rank r : {near, 2}) {
      for (const Rank lost : {3, back}) ASSERT_TRUE(inboxes[r]->wait_down(lost));
      for (const Rank lost : {3, back}) world.endpoint(r).process_down(lost);
      world.endpoint(r).expect_process(back, {}, {});
    }
    world.make_again(back, {3});
    auto returned = attach(world.endpoint(back), back);
    for (const Rank r : {near, 2}) {
      world.endpoint(back).send(numbered(back, r, 7));
      ASSERT_TRUE(inboxes[r]->wait_messages(1)) << "rank " << r;
      world.endpoint(r).send(numbered(r, back, 8));
    }
    ASSERT_TRUE(returned->wait_messages(2));
    EXPECT_EQ(returned->down_count(3), 0) << "its loss was known before";
    for (const Rank r : {near, 2}) EXPECT_EQ(inboxes[r]->down_count(back), 1);
    world.end(back);
    for (const Rank r : {near, 2}) ASSERT_TRUE(inboxes[r]->wait_down(back, 2)) << "rank " << r;
  }
}

// It has ended, or is stopped: once the run knows so, the one that joins does without it.
TEST(Tcp, AProcessThatIsLostWhileAnotherJoinsIsNotAwaited) {
  const DeafPort stopped(true);
  for (const bool ended : {true, false}) {
    SCOPED_TRACE(ended ? "ended" : "stopped");
    TcpWorld world(4, 1);
    std::map<Rank, std::shared_ptr<RecordingInbox>> inboxes;
    for (Rank r = 0; r < 4; ++r) inboxes[r] = attach(world.endpoint(r), r);
    for (const std::int32_t lost : {1, 3}) world.end(lost);
    for (const Rank r : {0, 2}) {
      for (const Rank lost : {1, 3}) ASSERT_TRUE(inboxes[r]->wait_down(lost));
      world.endpoint(r).expect_process(1, {}, {});
    }
    if (!ended) world.set_address(3, stopped.address());
    std::atomic<int> polls{0};
    const auto joined = world.try_again(
        1, {}, kTimeout, [&](std::int32_t process) { return process == 3 && ++polls > 2; });
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    EXPECT_GT(polls, 2);
    EXPECT_FALSE(world.endpoint(1).is_up(3));
    const auto returned = attach(world.endpoint(1), 1);
    for (const Rank r : {0, 2}) {
      world.endpoint(1).send(numbered(1, r, 7));
      ASSERT_TRUE(inboxes[r]->wait_messages(1)) << "rank " << r;
      world.endpoint(r).send(numbered(r, 1, 8));
    }
    ASSERT_TRUE(returned->wait_messages(2));
    world.endpoint(1).process_down(3);
    EXPECT_EQ(returned->down_count(3), 0) << "its loss is known";
  }
}

// As soon as its connect() returns, messages of the others reach it.
TEST(Tcp, AReturnedProcessCanBeSentToAtOnce) {
  TcpWorld world(3, 1);
  expect_messages_at_once_after_returns(world);
}

// Not before the others expect it.
TEST(Tcp, ALostProcessThatIsNotExpectedIsRefused) {
  TcpWorld world(3, 1);
  auto inbox = attach(world.endpoint(0), 0);
  attach(world.endpoint(1), 1);
  attach(world.endpoint(2), 2);
  world.end(1);
  ASSERT_TRUE(inbox->wait_down(1));
  const Error error = error_of(world.try_again(1, {}, 500ms));
  EXPECT_EQ(error.code, Errc::timeout);
  expect_mentions(error, {"process 0", "500 ms"});
}

// Killed while the third one is still waited for: a loss, after which a restart may help.
TEST(Tcp, AProcessThatIsLostWhileTheOthersConnectIsALoss) {
  auto first = make();
  auto second = make();
  const std::vector<std::string> addresses = {first->address(), second->address(), "127.0.0.1:9"};
  std::atomic<int> polls{0};  // of the first process, while it waits
  auto other = std::async(std::launch::async, [&] {
    return second->connect(addresses, one_each(1, 3), kTimeout, {kJob, [&] { return polls > 5; }});
  });
  const Error error = error_of(
      first->connect(addresses, one_each(0, 3), kTimeout, {kJob, [&] { return ++polls, false; }}));
  EXPECT_EQ(error.code, Errc::peer_down) << error.message;
  expect_mentions(error, {"process 1", "host1", "ended while the others were connecting"});
  EXPECT_FALSE(other.get().ok());
}

TEST(Tcp, AddressesThatAreNoneAreClearErrors) {
  for (const std::string address : {"nonsense", "127.0.0.1:", ":1", "no.such.host.invalid:1"}) {
    auto transport = make();
    const Error error =
        error_of(transport->connect({address, transport->address()}, one_each(1, 2), 200ms));
    expect_mentions(error, {"process 0", "host0", address});
  }
}

TEST(Tcp, ListeningWhereOneCannotIsAClearError) {
  const DeafPort taken(true);
  TcpOptions options = loopback();
  options.port = taken.port();
  auto same_port = make_tcp_transport(options);
  ASSERT_FALSE(same_port.ok());
  expect_mentions(same_port.error(), {taken.address(), "Address already in use"});
  options.host = "192.0.2.1";  // reserved: no host has it
  const auto elsewhere = make_tcp_transport(options);
  ASSERT_FALSE(elsewhere.ok());
  expect_mentions(elsewhere.error(), {"Cannot assign requested address"});
}

TEST(Tcp, AllInterfacesAreThoseOfBothFamilies) {
  asio::io_context loop;
  tcp::Listener listener(loop);
  const auto opened = listener.open("", 0);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  for (const std::string host : {"127.0.0.1", "::1"}) {
    if (!can_listen(host, 0)) continue;  // a machine without IPv6
    const auto found = tcp::probe(host, listener.port(), kTimeout);
    EXPECT_TRUE(found.ok()) << host << ": " << found.error().message;
  }
}

TEST(Tcp, AProcessThatStartsLateIsWaitedFor) {
  auto first = make();
  auto second = make();
  const std::vector<std::string> addresses = {first->address(), second->address()};
  auto early = std::async(std::launch::async, [&] {
    return second->connect(addresses, one_each(1, 2), kTimeout).ok();
  });
  std::this_thread::sleep_for(200ms);  // its greeting is there before connect() is
  EXPECT_TRUE(first->connect(addresses, one_each(0, 2), kTimeout).ok());
  EXPECT_TRUE(early.get());
  auto inbox = attach(*first, 0);
  attach(*second, 1);
  second->detach(1);  // the shortest frame there is, right behind the greeting
  EXPECT_TRUE(inbox->wait_down(1));
}

// Connects both at once, with placements and jobs of their own.
std::pair<Expected<void>, Expected<void>> connect_both(const Placement& first,
                                                       const Placement& second,
                                                       const JobToken& second_job = kJob) {
  auto a = make();
  auto b = make();
  const std::vector<std::string> addresses = {a->address(), b->address()};
  auto other = std::async(std::launch::async, [&] {
    return b->connect(addresses, second, 1s, {second_job, nullptr});
  });
  Expected<void> own = a->connect(addresses, first, 1s, {kJob, nullptr});
  return {own, other.get()};
}

TEST(Tcp, OtherJobsAndPlacementsAreRefusedWithTheReason) {
  auto [a, b] = connect_both(one_each(0, 2), one_each(1, 2), kOtherJob);
  EXPECT_EQ(error_of(a).code, Errc::timeout)
      << "an unauthenticated connection must not end the wait for the peer";
  expect_mentions(error_of(b), {"process 0", "another job"});
  auto [c, d] = connect_both(place({0, 1}, 0, 2), place({1, 0}, 1, 2));
  EXPECT_FALSE(c.ok());
  expect_mentions(error_of(d), {"process 0", "placement"});
}

// Both dial process 0, whose address is the first one's own.
TEST(Tcp, TwoProcessesWithOneIndexAreAnErrorForBoth) {
  auto [a, b] = connect_both(one_each(1, 2), one_each(1, 2));
  expect_mentions(error_of(a), {"index"});
  EXPECT_FALSE(b.ok());
}

TEST(Tcp, ASecondProcessWithAnIndexEndsTheStart) {
  auto first = make();
  auto one = make();
  auto another = make();
  const std::vector<std::string> addresses = {first->address(), one->address(), "127.0.0.1:9"};
  std::vector<Expected<void>> results(3);
  RemoteTransport* const transports[] = {first.get(), one.get(), another.get()};
  run_threads(3, [&](int i) {
    results[i] = transports[i]->connect(addresses, one_each(i == 0 ? 0 : 1, 3), 3s);
  });
  expect_mentions(error_of(results[0]), {"process 1", "index"});
  EXPECT_FALSE(results[1].ok());
  EXPECT_FALSE(results[2].ok());
}

TEST(Tcp, ListensOnAllInterfacesWithAnAddressThatOthersReach) {
  TcpOptions options = loopback();
  options.host = "0.0.0.0";
  TcpWorld world(2, 1, options);
  attach(world.endpoint(0), 0);
  auto inbox = attach(world.endpoint(1), 1);
  world.endpoint(0).send(numbered(0, 1, 0));
  EXPECT_TRUE(inbox->wait_messages(1));
}

TEST(Tcp, AWorldOfOneProcessNeedsNoWire) {
  auto transport = make();
  ASSERT_TRUE(transport->connect({transport->address()}, place({0, 0}, 0, 1), kTimeout).ok());
  attach(*transport, 0);
  auto inbox = attach(*transport, 1);
  transport->send(numbered(0, 1, 0));
  EXPECT_TRUE(inbox->wait_messages(1));
}

TEST(Tcp, UseBeforeConnectBreaksAnInvariant) {
  auto transport = make();
  EXPECT_THROW(transport->send(numbered(0, 1, 0)), InvariantBroken);
  EXPECT_EQ(transport->world_size(), 0);
}

TEST(TcpAddress, SplitsWhatItJoins) {
  for (const std::string host : {"127.0.0.1", "::1", "node-3.cluster"}) {
    const auto parts = tcp::split_address(tcp::join_address(host, 4711));
    ASSERT_TRUE(parts.ok());
    EXPECT_EQ(parts->first, host);
    EXPECT_EQ(parts->second, "4711");
  }
}

TEST(TcpAddress, TheHostIsFoundWithAndWithoutItsPort) {
  struct Case {
    std::string text, host;
    std::optional<std::string> port;
  };
  for (const Case& c :
       {Case{"node1:29400", "node1", "29400"}, Case{"node1:", "node1", ""},
        Case{"node1", "node1", std::nullopt}, Case{"[fd00::1]:29400", "fd00::1", "29400"},
        Case{"[fd00::1]:", "fd00::1", ""}, Case{"[fd00::1]", "fd00::1", std::nullopt},
        Case{"fd00::1:29400", "fd00::1", "29400"}, Case{"fd00::1:x", "fd00::1", "x"},
        Case{"", "", std::nullopt}, Case{":", "", ""}, Case{":80", "", "80"},
        Case{"[", "[", std::nullopt}, Case{"[]", "", std::nullopt}, Case{"[]:80", "", "80"},
        Case{"]:80", "]", "80"}}) {
    const tcp::HostAndPort found = tcp::split_port(c.text);
    EXPECT_EQ(found.host, c.host) << c.text;
    EXPECT_EQ(found.port, c.port) << c.text;
    const auto address = tcp::split_address(c.text);
    EXPECT_EQ(address.ok(), !c.host.empty() && c.port && !c.port->empty()) << c.text;
    const auto expected = std::make_pair(c.host, c.port.value_or(""));
    EXPECT_TRUE(!address.ok() || *address == expected) << c.text;
  }
}

}  // namespace tcp_test
}  // namespace grapevine::conformance
