#include "net/sim/sim_transport.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "messages/codec.hpp"
#include "messages/random.hpp"
#include "net/sim/scaled_size.hpp"
#include "tests/conformance/transport_suite.hpp"

namespace grapevine::conformance {
namespace sim_transport_test {

// Moves the time as the runtime does, on a thread of its own.
class SimWorld {
 public:
  explicit SimWorld(std::int32_t world_size)
      : transport_(config(world_size), [this] { return Timestamp(now_.load()); }),
        pump_([this] { run(); }) {}
  ~SimWorld() {
    stop_ = true;
    pump_.join();
  }
  Transport& endpoint(Rank) { return transport_; }

 private:
  static SimConfig config(std::int32_t world_size) {
    SimConfig config;
    config.world_size = world_size;
    return config;
  }
  void run() {
    while (!stop_) {
      const auto next = transport_.next_at();
      if (!next) {
        std::this_thread::yield();
        continue;
      }
      now_ = std::max(now_.load(), next->count());
      transport_.run_next();
    }
  }

  std::atomic<std::int64_t> now_{0};
  std::atomic<bool> stop_{false};
  SimTransport transport_;
  std::thread pump_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Sim, TransportSuite, SimWorld);

// Arrivals with their times, in order.
struct Arrival {
  Timestamp at{0};
  Rank from = 0, to = 0;
  std::int32_t index = -1;  // -1: the rank `from` is down; -2: a message was lost
};

class Network {
 public:
  explicit Network(SimConfig config) : transport_(std::move(config), [this] { return now_; }) {
    for (Rank rank = 0; rank < transport_.world_size(); ++rank)
      EXPECT_TRUE(transport_.attach(rank, std::make_shared<Noting>(*this, rank)).ok());
  }

  void send(Rank from, Rank to, std::int32_t index, std::int64_t values = 0) {
    Envelope message = numbered(from, to, index);
    if (values > 0)
      std::get<Chunk>(message.payload).data = FrozenTensor::freeze(at::empty({values}, at::kFloat));
    transport_.send(std::move(message));
  }
  void run_until(Timestamp end) {
    for (auto next = transport_.next_at(); next && *next <= end; next = transport_.next_at()) {
      now_ = std::max(now_, *next);
      transport_.run_next();
    }
    now_ = end;
  }
  void run() { run_until(std::chrono::hours(1)); }
  std::vector<Arrival> at_rank(Rank to) const {
    std::vector<Arrival> found;
    for (const Arrival& arrival : arrivals)
      if (arrival.to == to) found.push_back(arrival);
    return found;
  }

  struct Noting : Inbox {
    Noting(Network& net, Rank own) : network(net), rank(own) {}
    void deliver(Envelope e) override {
      network.arrivals.push_back({network.now_, e.from, rank, index_of(e)});
    }
    void peer_down(Rank peer, const std::string&) override {
      network.arrivals.push_back({network.now_, peer, rank, -1});
    }
    void lost(Rank peer) override { network.arrivals.push_back({network.now_, peer, rank, -2}); }
    Network& network;
    Rank rank;
  };

  Timestamp now_{0};
  std::vector<Arrival> arrivals;
  SimTransport transport_;
};

constexpr double kAlpha = 1e-3, kBeta = 1e-6;  // 1 ms, 1 MB/s

SimConfig plain(std::int32_t ranks) {
  SimConfig config;
  config.world_size = ranks;
  config.network.link = {kAlpha, kBeta};
  return config;
}

double bytes_of(std::int64_t values) {
  Envelope message = numbered(0, 1, 0);
  if (values > 0)
    std::get<Chunk>(message.payload).data = FrozenTensor::freeze(at::empty({values}, at::kFloat));
  return static_cast<double>(wire_size(message));
}

TEST(SimTransport, AMessageTakesAlphaAndBetaForEachByte) {
  Network network(plain(2));
  network.send(0, 1, 0, 1000);
  network.run();
  ASSERT_EQ(network.arrivals.size(), 1u);
  EXPECT_NEAR(to_seconds(network.arrivals[0].at), kAlpha + bytes_of(1000) * kBeta, 1e-8);
}

TEST(SimTransport, TheSendersNicSendsOneAfterTheOther) {
  Network network(plain(3));
  network.send(0, 1, 0, 1000);
  network.send(0, 2, 1, 1000);
  network.run();
  ASSERT_EQ(network.arrivals.size(), 2u);
  EXPECT_NEAR(to_seconds(network.at_rank(2)[0].at), kAlpha + 2 * bytes_of(1000) * kBeta, 1e-8);
}

TEST(SimTransport, TheReceiversNicReceivesOneAfterTheOther) {
  Network network(plain(5));
  for (Rank from = 1; from < 5; ++from) network.send(from, 0, from, 1000);
  network.run();
  const auto arrivals = network.at_rank(0);
  ASSERT_EQ(arrivals.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_NEAR(to_seconds(arrivals[i].at),
                kAlpha + static_cast<double>(i + 1) * bytes_of(1000) * kBeta, 1e-8);
}

TEST(SimTransport, MessagesInsideANodePassNoNic) {
  SimConfig config = plain(4);
  config.network.ranks_per_node = 2;
  config.network.inside = {1e-5, 0};
  Network network(config);
  network.send(0, 2, 0, 1000);  // keeps the NIC of node 0 busy
  network.send(0, 1, 1, 1000);
  network.send(1, 3, 2, 1000);  // shares that NIC
  network.run();
  EXPECT_NEAR(to_seconds(network.at_rank(1)[0].at), 1e-5, 1e-8);
  EXPECT_NEAR(to_seconds(network.at_rank(3)[0].at), kAlpha + 2 * bytes_of(1000) * kBeta, 1e-8);
}

TEST(SimTransport, RacksShareTheirUplink) {
  SimConfig config = plain(4);
  config.network.nodes_per_rack = 2;
  config.network.uplink = {2e-3, 4e-6};  // slower than the NICs
  Network network(config);
  network.send(0, 2, 0, 1000);
  network.send(1, 3, 1, 1000);
  network.run();
  const double bytes = bytes_of(1000);
  EXPECT_NEAR(to_seconds(network.at_rank(2)[0].at), kAlpha + 2e-3 + bytes * 4e-6, 1e-7);
  EXPECT_NEAR(to_seconds(network.at_rank(3)[0].at), kAlpha + 2e-3 + 2 * bytes * 4e-6, 1e-7);
}

TEST(SimTransport, JitterReordersAcrossPairsOnly) {
  SimConfig config = plain(9);
  config.network.jitter = 0.1;
  config.seed = 7;
  Network network(config);
  for (std::int32_t index = 0; index < 50; ++index)
    for (Rank from = 1; from < 9; ++from) network.send(from, 0, index);
  network.run();
  std::map<Rank, std::int32_t> next;
  int overtaken = 0;
  std::int32_t newest = 0;
  for (const Arrival& arrival : network.at_rank(0)) {
    EXPECT_EQ(arrival.index, next[arrival.from]++) << "from rank " << arrival.from;
    overtaken += arrival.index < newest;
    newest = std::max(newest, arrival.index);
  }
  EXPECT_EQ(network.arrivals.size(), 400u);
  EXPECT_GT(overtaken, 0);
}

std::uint64_t hash_of(std::uint64_t seed) {
  SimConfig config = plain(4);
  config.network.jitter = 1e-3;
  config.seed = seed;
  Network network(config);
  for (std::int32_t index = 0; index < 20; ++index)
    for (Rank from = 1; from < 4; ++from) network.send(from, 0, index, index);
  network.run();
  return network.transport_.hash();
}

TEST(SimTransport, EqualSeedsHaveEqualHashes) {
  EXPECT_EQ(hash_of(1), hash_of(1));
  EXPECT_NE(hash_of(1), hash_of(2));
}

TEST(SimTransport, APartitionHoldsMessagesUntilItHeals) {
  SimConfig config = plain(3);
  config.link_faults.push_back(
      {LinkFault::Kind::partition, 1, 0, Timestamp{0}, std::chrono::seconds(1), 1});
  Network network(config);
  network.send(0, 1, 0);
  network.send(1, 0, 1);
  network.send(0, 2, 2);
  network.run();
  EXPECT_GE(network.at_rank(1)[0].at, std::chrono::seconds(1));
  EXPECT_GE(network.at_rank(0)[0].at, std::chrono::seconds(1));
  EXPECT_LT(network.at_rank(2)[0].at, std::chrono::milliseconds(10));
}

TEST(SimTransport, ASlowLinkTakesItsFactorAndDelaysNoOther) {
  SimConfig config = plain(3);
  config.link_faults.push_back(
      {LinkFault::Kind::slow, 0, 1, Timestamp{0}, std::chrono::seconds(60), 10});
  Network network(config);
  network.send(0, 1, 0, 1000);
  network.send(0, 2, 1, 1000);
  network.run();
  const double bytes = bytes_of(1000);
  EXPECT_NEAR(to_seconds(network.at_rank(1)[0].at), 10 * (kAlpha + bytes * kBeta), 1e-6);
  EXPECT_NEAR(to_seconds(network.at_rank(2)[0].at), kAlpha + 2 * bytes * kBeta, 1e-6);
}

// The factor is of the way between the two ranks, whatever it leads over.
TEST(SimTransport, ASlowLinkTakesItsFactorInsideANodeAndBetweenRacks) {
  SimConfig config = plain(8);
  config.network.ranks_per_node = 2;
  config.network.nodes_per_rack = 2;
  config.network.inside = {1e-5, 1e-8};
  config.network.uplink = {1e-2, 1e-5};
  for (const Rank to : {1, 2, 4}) {
    SCOPED_TRACE("to rank " + std::to_string(to));
    const auto arrival = [&](double factor) {
      SimConfig slow = config;
      slow.link_faults.push_back(
          {LinkFault::Kind::slow, 0, to, Timestamp{0}, std::chrono::hours(1), factor});
      Network network(slow);
      network.send(0, to, 0, 25'000);
      network.run();
      return to_seconds(network.at_rank(to).at(0).at);
    };
    const double usual = arrival(1);
    for (const double factor : {2.0, 7.0})
      EXPECT_NEAR(arrival(factor) / usual, factor, 0.02 * factor);
  }
}

TEST(SimTransport, MessagesStayInOrderWhenALinkIsNoLongerSlow) {
  SimConfig config = plain(2);
  config.link_faults.push_back(
      {LinkFault::Kind::slow, 0, 1, Timestamp{0}, std::chrono::milliseconds(10), 50});
  Network network(config);
  for (std::int32_t index = 0; index < 4; ++index) {
    network.send(0, 1, index, 1000);
    network.run_until(std::chrono::milliseconds(6 * (index + 1)));
  }
  network.run();
  ASSERT_EQ(network.arrivals.size(), 4u);
  for (std::int32_t index = 0; index < 4; ++index)
    EXPECT_EQ(network.arrivals[static_cast<std::size_t>(index)].index, index);
}

TEST(SimTransport, APausedRankNeitherSendsNorReceives) {
  SimConfig config = plain(3);
  config.pauses.push_back({0, Timestamp{0}, std::chrono::seconds(1)});
  Network network(config);
  network.send(0, 1, 0);
  network.send(1, 0, 1);
  network.send(1, 2, 2);
  network.run();
  EXPECT_GE(network.at_rank(1)[0].at, std::chrono::seconds(1));
  EXPECT_GE(network.at_rank(0)[0].at, std::chrono::seconds(1));
  EXPECT_LT(network.at_rank(2)[0].at, std::chrono::milliseconds(10));
}

TEST(SimTransport, WhatHasNotLeftTheNicDiesWithItsRank) {
  Network network(plain(3));
  network.send(0, 1, 0, 1000);  // has left after 4 ms
  network.send(0, 1, 1, 1000);  // after 8 ms
  network.send(1, 0, 2, 1000);
  network.run_until(std::chrono::milliseconds(5));
  network.transport_.detach(0);
  network.run();
  const auto arrivals = network.at_rank(1);
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].index, 0);
  EXPECT_EQ(arrivals[1].index, -1) << "the end of rank 0 is after its last message";
  for (const Arrival& arrival : network.at_rank(0))
    EXPECT_LE(arrival.at, std::chrono::milliseconds(5));
  EXPECT_EQ(network.at_rank(2).size(), 1u);
}

// What it had not begun to send takes no time, of others and of its next life.
TEST(SimTransport, TheQueueOfADeadRankEndsWithIt) {
  Network network(plain(3));
  for (std::int32_t index = 0; index < 10; ++index)
    network.send(0, 1, index, 25'000);  // 0.1 s each
  network.run_until(std::chrono::milliseconds(5));
  network.transport_.detach(0);
  network.run_until(std::chrono::milliseconds(450));
  network.send(2, 1, 77);
  network.run();
  const auto arrivals = network.at_rank(1);
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].index, -1);
  EXPECT_LT(arrivals[0].at, std::chrono::milliseconds(110)) << "behind the one that was under way";
  EXPECT_EQ(arrivals[1].index, 77);
  EXPECT_LT(arrivals[1].at, std::chrono::milliseconds(455));
}

// Its messages wait before the NIC, which the other ranks of its node use meanwhile.
TEST(SimTransport, APausedRankHoldsUpNoOtherOfItsNode) {
  SimConfig config = plain(4);
  config.network.ranks_per_node = 2;
  config.pauses.push_back({0, Timestamp{0}, std::chrono::seconds(1)});
  Network network(config);
  network.send(0, 2, 0, 1000);
  network.send(1, 2, 1, 1000);
  network.run();
  const auto arrivals = network.at_rank(2);
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].index, 1);
  EXPECT_LT(arrivals[0].at, std::chrono::milliseconds(10));
  EXPECT_GE(arrivals[1].at, std::chrono::seconds(1));
}

// Whatever happens to a rank and its links, of a pair no message passes another one.
TEST(SimTransport, PairsStayInOrderThroughPausesAndQueues) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    SimConfig config = plain(6);
    config.network.ranks_per_node = 2;
    config.network.nodes_per_rack = seed % 2 == 0 ? 2 : 0;
    config.network.jitter = 1e-3;
    const auto time = [&](int most_ms) {
      return Timestamp(std::chrono::microseconds(rng() % (1000 * static_cast<unsigned>(most_ms))));
    };
    for (int i = 0; i < 4; ++i)
      config.pauses.push_back({static_cast<Rank>(rng() % 6), time(200), time(50)});
    Network network(config);
    std::map<std::pair<Rank, Rank>, std::int32_t> sent;
    for (int i = 0; i < 300; ++i) {
      const auto from = static_cast<Rank>(rng() % 6), to = static_cast<Rank>(rng() % 6);
      if (from == to) continue;
      network.send(from, to, sent[{from, to}]++, static_cast<std::int64_t>(rng() % 2000));
      // Also at the very end of a pause.
      const Timestamp next =
          rng() % 4 == 0 ? config.pauses[rng() % 4].end() : network.now_ + time(3);
      network.run_until(std::max(network.now_, next));
    }
    network.run();
    std::map<std::pair<Rank, Rank>, std::int32_t> arrived;
    for (const Arrival& arrival : network.arrivals) {
      const int expected = arrived[{arrival.from, arrival.to}]++;
      ASSERT_EQ(arrival.index, expected) << arrival.from << " to " << arrival.to;
    }
    EXPECT_EQ(arrived, sent);
  }
}

// A receiver that is paused meanwhile hears of the earlier life neither a message nor its end.
TEST(SimTransport, NothingOfAnEarlierLifeArrivesAfterTheReturn) {
  SimConfig config = plain(2);
  config.pauses.push_back({1, std::chrono::milliseconds(1), std::chrono::seconds(1)});
  Network network(config);
  network.send(0, 1, 0);
  network.run_until(std::chrono::milliseconds(50));
  network.transport_.detach(0);
  network.run_until(std::chrono::milliseconds(60));
  const auto again = std::make_shared<Network::Noting>(network, 0);
  ASSERT_TRUE(network.transport_.attach(0, again).ok());
  network.send(0, 1, 1);
  network.run();
  const auto arrivals = network.at_rank(1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].index, 1);
}

TEST(SimTransport, LossTakesOnlyWhatItMayTakeAndReportsIt) {
  SimConfig config = plain(2);
  config.network.loss = 0.5;
  config.seed = 3;
  config.may_lose = [](const Envelope& e) { return index_of(e) % 2 == 0; };
  Network network(config);
  for (std::int32_t index = 0; index < 200; ++index) network.send(0, 1, index);
  network.run();
  int lost = 0, odd = 0;
  for (const Arrival& arrival : network.arrivals) {
    lost += arrival.index == -2;
    odd += arrival.index > 0 && arrival.index % 2 == 1;
  }
  EXPECT_EQ(network.arrivals.size(), 200u);
  EXPECT_EQ(odd, 100);
  EXPECT_GT(lost, 20);
  EXPECT_LT(lost, 80);
}

TEST(ScaledSize, OnlyTheModelGrows) {
  Envelope message;
  Swap swap;
  swap.x = FrozenTensor::freeze(at::zeros({10}, at::kFloat));
  swap.steps = FrozenTensor::freeze(at::zeros({4}, at::kLong));
  message.payload = swap;
  EXPECT_EQ(scaled_wire_size(message, 1), wire_size(message));
  EXPECT_EQ(scaled_wire_size(message, 100), wire_size(message) + 99 * 40);
  message.payload = Leave{3};
  EXPECT_EQ(scaled_wire_size(message, 100), wire_size(message));
}

TEST(NetworkModel, ReadsBackWhatItWrites) {
  const auto model = parse_network("alpha=5e-05,beta=8e-09,jitter=1e-05,node=4,rack=2,loss=0.25");
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->ranks_per_node, 4);
  EXPECT_EQ(model->nodes_per_rack, 2);
  const auto again = parse_network(network_text(*model));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(network_text(*again), network_text(*model));
  EXPECT_EQ(network_text(NetworkModel{}), "");
}

TEST(NetworkModel, RefusesWhatItCannotMean) {
  for (const char* spec : {"alpha", "alpha=", "alpha=-1", "alpha=x", "alpha=nan", "gamma=1",
                           "alpha=1,alpha=2", "loss=1", "node=0", "node=1.5"}) {
    const auto model = parse_network(spec);
    ASSERT_FALSE(model.ok()) << spec;
    EXPECT_NE(model.error().message.find("--network"), std::string::npos) << model.error().message;
  }
}

}  // namespace sim_transport_test
}  // namespace grapevine::conformance
