// The messages whose lists are packed come out as they went in, and what is damaged is refused.
#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/forwarding_actor_proxy.hpp>
#include <caf/proxy_registry.hpp>
#include <caf/scoped_execution_unit.hpp>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "actors/protocol.hpp"

namespace grapevine {
namespace packed_lists_test {

using Random = std::mt19937_64;
constexpr Rank kRanks = 4096;

class PackedListsTest : public testing::Test {
 protected:
  template <class Message>
  std::vector<char> written(Message message) {
    std::vector<char> bytes;
    caf::binary_serializer sink{system_, bytes};
    EXPECT_FALSE(sink(message));
    return bytes;
  }
  template <class Message>
  std::optional<Message> read(const std::vector<char>& bytes) {
    Message message;
    caf::binary_deserializer source{system_, bytes};
    if (source(message)) return std::nullopt;
    return message;
  }
  template <class Message>
  Message through_the_wire(const Message& message) {
    const auto copy = read<Message>(written(message));
    EXPECT_TRUE(copy) << "it is refused";
    return copy.value_or(Message());
  }
  // With every byte changed once: each is refused, or is another message that is written as it
  // was read. How many are refused.
  template <class Message>
  std::size_t refused_of_damaged(const Message& message) {
    const std::vector<char> good = written(message);
    std::size_t refused = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
      std::vector<char> bytes = good;
      bytes[at] ^= static_cast<char>(1U << (at % 8));
      const auto copy = read<Message>(bytes);
      if (!copy) {
        ++refused;
        continue;
      }
      const auto again = read<Message>(written(*copy));
      EXPECT_TRUE(again && written(*again) == written(*copy)) << at;
    }
    return refused;
  }

  caf::actor_system_config config_;
  caf::actor_system system_{config_};
};

// Each with the probability `of_8` / 8.
std::vector<Rank> random_ranks(Random& random, std::uint64_t of_8) {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < kRanks; ++rank)
    if (random() % 8 < of_8) ranks.push_back(rank);
  return ranks;
}

InstallView random_view(Random& random) {
  InstallView view;
  view.view = static_cast<std::int64_t>(random() >> 1);
  view.kind = ViewKind::common_model;
  view.horizon.steps = 7;
  view.horizon.first_epoch = 1.5;
  view.settings = {{"lr", "0.1"}};
  view.donor = 3;
  view.passes = true;
  for (auto* ranks : {&view.members, &view.behind, &view.joining, &view.heads, &view.new_servers})
    *ranks = random_ranks(random, random() % 9);
  return view;
}

ViewCounts random_counts(Random& random) {
  ViewCounts view;
  view.view = static_cast<std::int64_t>(random() >> 1);
  for (const Rank rank : random_ranks(random, 1))
    for (std::uint64_t count = random() % 4; count > 0; --count)
      view.counts[rank].push_back(static_cast<std::int64_t>(random() >> (random() % 64)));
  return view;
}

TEST_F(PackedListsTest, AViewKeepsItsRanksAndCounts) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const InstallView view = random_view(random);
    const InstallView copy = through_the_wire(view);
    EXPECT_EQ(copy.view, view.view);
    EXPECT_EQ(copy.kind, view.kind);
    EXPECT_EQ(copy.horizon.steps, 7);
    EXPECT_EQ(copy.horizon.first_epoch, 1.5);
    EXPECT_EQ(copy.settings, view.settings);
    EXPECT_EQ(copy.donor, 3);
    EXPECT_TRUE(copy.passes);
    const auto lists = [](const InstallView& v) {
      return std::tie(v.members, v.behind, v.joining, v.new_servers, v.heads);
    };
    EXPECT_TRUE(lists(copy) == lists(view));
    const ViewCounts counts = random_counts(random), received = through_the_wire(counts);
    EXPECT_EQ(received.view, counts.view);
    EXPECT_EQ(received.counts, counts.counts);
    const HoldForView hold{view.view, view.members, view.joining, true};
    const HoldForView held = through_the_wire(hold);
    EXPECT_EQ(held.view, hold.view);
    EXPECT_EQ(held.members, hold.members);
    EXPECT_EQ(held.arriving, hold.arriving);
    EXPECT_TRUE(held.gradients_end);
  }
}

TEST_F(PackedListsTest, AWaitKeepsItsNumbers) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    WaitReport report;
    report.question = 5;
    report.worker = WorkerActivity::reading;
    report.view = 6;
    report.holds_messages_back = true;
    report.queued_bytes = 7;
    for (std::uint64_t waits = random() % 1000; waits > 0; --waits)
      report.waits.push_back({static_cast<Rank>(random() % kRanks) - 1,
                              static_cast<PayloadKind>(random() % (kLastPayloadKind + 1)),
                              static_cast<std::int64_t>(random()),
                              static_cast<std::int32_t>(random()),
                              static_cast<std::int32_t>(random())});
    const WaitReport copy = through_the_wire(report);
    EXPECT_EQ(copy.question, 5);
    EXPECT_EQ(copy.worker, WorkerActivity::reading);
    EXPECT_EQ(copy.view, 6);
    EXPECT_TRUE(copy.holds_messages_back);
    EXPECT_EQ(copy.queued_bytes, 7);
    ASSERT_EQ(copy.waits.size(), report.waits.size());
    const auto fields = [](const Awaited& one) {
      return std::tie(one.from, one.payload, one.operation, one.part, one.parts);
    };
    for (std::size_t i = 0; i < copy.waits.size(); ++i)
      EXPECT_TRUE(fields(copy.waits[i]) == fields(report.waits[i])) << i;
  }
}

// The most that there are: the senders and kinds are exact, and so is one operation of all.
TEST_F(PackedListsTest, ThousandsOfWaitsKeepTheirSenders) {
  Random random(1);
  WaitReport report;
  for (Rank from = 0; from < 2 * kRanks; ++from)
    report.waits.push_back({from % kRanks, from < kRanks ? PayloadKind::chunk : PayloadKind::share,
                            std::int64_t{1} << 40, static_cast<std::int32_t>(random() >> 33), 9});
  const WaitReport copy = through_the_wire(report);
  ASSERT_EQ(copy.waits.size(), report.waits.size());
  for (std::size_t i = 0; i < copy.waits.size(); ++i) {
    EXPECT_EQ(copy.waits[i].from, report.waits[i].from);
    EXPECT_EQ(copy.waits[i].payload, report.waits[i].payload);
    EXPECT_EQ(copy.waits[i].operation, report.waits[i].operation);
    EXPECT_EQ(copy.waits[i].parts, 9);
    EXPECT_LE(copy.waits[i].part, report.waits[i].part);
    EXPECT_GT(copy.waits[i].part, report.waits[i].part - (1 << 19));
  }
}

TEST_F(PackedListsTest, FiguresOfUpTo2560RanksAreExact) {
  Random random(2);
  RankFigures figures;
  for (Rank rank = 0; rank < 2560; ++rank) {
    figures.waited_ns[rank] = static_cast<std::int64_t>(random() >> 1);
    figures.sent_bytes[rank] = random();
  }
  for (int i = 0; i < 500; ++i) {
    figures.ledger.staleness[static_cast<std::int64_t>(random() >> 14)] = 1;
    figures.ledger.contributed[i - 1] = static_cast<std::int64_t>(random() >> 14);
  }
  const RankFigures copy = through_the_wire(figures);
  EXPECT_EQ(copy.waited_ns, figures.waited_ns);
  EXPECT_EQ(copy.sent_bytes, figures.sent_bytes);
  EXPECT_EQ(copy.ledger.staleness, figures.ledger.staleness);
  EXPECT_EQ(copy.ledger.contributed, figures.ledger.contributed);
  for (Rank rank = 2560; rank < kRanks; ++rank)
    figures.waited_ns[rank] = static_cast<std::int64_t>(random() >> 1);
  const RankFigures rounded = through_the_wire(figures);
  ASSERT_EQ(rounded.waited_ns.size(), figures.waited_ns.size());
  for (const auto& [rank, waited] : figures.waited_ns) {
    EXPECT_LE(rounded.waited_ns.at(rank), waited);
    EXPECT_GT(rounded.waited_ns.at(rank), waited - (std::int64_t{1} << 25));
  }
}

TEST_F(PackedListsTest, DamagedBytesAreRefusedOrAnotherMessage) {
  Random random(3);
  InstallView view;
  view.members = {0, 1, 3, 4, 9};
  view.joining = {3};
  EXPECT_GT(refused_of_damaged(view), 10U);
  ViewCounts counts;
  counts.counts = {{0, {7, 14, 3}}, {1, {7, 14, 0}}, {9, {6, 12, 0}}};
  EXPECT_GT(refused_of_damaged(counts), 10U);
  WaitReport report;
  report.waits = {{2, PayloadKind::chunk, 812, 5, 6}, {-1, PayloadKind::activate, 5}};
  EXPECT_GT(refused_of_damaged(report), 10U);
  RankFigures figures;
  figures.waited_ns = {{RankFigures::kNobody, 5}, {0, 17}, {6, 70}};
  figures.sent_bytes = {{1, 1ULL << 63U}};
  figures.ledger.staleness = {{0, 4}, {2, 1}};
  EXPECT_GT(refused_of_damaged(figures), 10U);
}

// A number that does not fit into its field is not cut.
TEST_F(PackedListsTest, ANumberThatIsTooLargeIsRefused) {
  std::string bytes;
  pack({std::int64_t{1} << 32}, bytes);
  std::vector<std::int32_t> ranks;
  PackedLists lists([&ranks](ListArchive& a) { return a(ranks); });
  lists.bytes = bytes;
  EXPECT_TRUE(lists.restore());
  lists.bytes.clear();
  pack({7}, lists.bytes);
  EXPECT_FALSE(lists.restore());
  EXPECT_EQ(ranks, std::vector<std::int32_t>{7});
}

// Each rank once, in the order of their numbers.
TEST_F(PackedListsTest, TheCountsOfAViewAreSplit) {
  Random random(4);
  for (const std::size_t most : {1U, 3U, 7U, 100U, 100'000U}) {
    const ViewCounts whole = random_counts(random);
    ClosedCounts counts;
    for (const ViewCounts& part : split_counts(whole.view, whole.counts, most)) {
      EXPECT_EQ(part.view, whole.view);
      EXPECT_FALSE(part.counts.empty());
      std::size_t numbers = 0;
      for (const auto& own : part.counts) {
        numbers += own.second.size();
        EXPECT_TRUE(counts.insert(own).second);
      }
      EXPECT_TRUE(numbers <= most || part.counts.size() == 1) << numbers;
    }
    EXPECT_EQ(counts, whole.counts);
  }
  EXPECT_EQ(split_counts(1, {{0, {1, 2, 3}}, {1, {4, 5, 6}}}).size(), 1U);
  EXPECT_TRUE(split_counts(1, {}).empty());
}

// ---- actors ----

caf::behavior idle() {
  return {[](int) {}};
}

TEST_F(PackedListsTest, AProcessKeepsItsActors) {
  Random random(5);
  Ready ready;
  ready.process = 2;
  ready.nonce = "nonce";
  std::vector<caf::actor> actors;
  for (int i = 0; i < 300; ++i) {
    for (std::uint64_t others = random() % 5; others > 0; --others) system_.next_actor_id();
    actors.push_back(system_.spawn(&idle));
    ready.peers.push_back(caf::actor_cast<PeerActor>(actors.back()));
  }
  EXPECT_LE(written(ready).size(), 100U + 4 * ready.peers.size());
  const Ready copy = through_the_wire(ready);
  EXPECT_EQ(copy.process, 2);
  EXPECT_EQ(copy.nonce, "nonce");
  ASSERT_EQ(copy.peers.size(), ready.peers.size());
  for (std::size_t i = 0; i < copy.peers.size(); ++i)
    EXPECT_EQ(caf::actor_cast<caf::strong_actor_ptr>(copy.peers[i]),
              caf::actor_cast<caf::strong_actor_ptr>(ready.peers[i]));
  ready.peers[7] = PeerActor();
  const Ready with_none = through_the_wire(ready);
  ASSERT_EQ(with_none.peers.size(), 300U);
  EXPECT_FALSE(with_none.peers[7]);
  EXPECT_TRUE(with_none.peers[8]);
  // Without a connection the actors of all other processes are unknown: so is each of these where
  // the process is another.
  EXPECT_GT(refused_of_damaged(ready), sizeof(caf::actor_id));
  for (const caf::actor& actor : actors) caf::anon_send_exit(actor, caf::exit_reason::kill);
}

// CAF's proxies of the actors of other processes, as a connection has them.
class Proxies : public caf::proxy_registry::backend {
 public:
  explicit Proxies(caf::actor_system& system) : system_(system), registry(system, *this) {
    context.proxy_registry_ptr(&registry);
  }
  caf::strong_actor_ptr make_proxy(caf::node_id process, caf::actor_id number) override {
    caf::actor_config config;
    return caf::make_actor<caf::forwarding_actor_proxy, caf::strong_actor_ptr>(
        number, process, &system_, config, caf::actor());
  }
  void set_last_hop(caf::node_id*) override {}

 private:
  caf::actor_system& system_;

 public:
  caf::proxy_registry registry;
  caf::scoped_execution_unit context{&system_};
};

const caf::node_id& other_process() {
  static const caf::node_id process = caf::make_node_id(1, std::string(40, 'a')).value();
  return process;
}

class ProxiesTest : public PackedListsTest {
 protected:
  // Whether it is accepted.
  bool take(const std::vector<char>& bytes) {
    Ready ready;
    caf::binary_deserializer source{&proxies_.context, bytes};
    return !source(ready);
  }
  // As Ready has them on the wire, behind the fields in front.
  std::vector<char> ready_of(std::uint64_t first, std::vector<std::uint32_t> numbers) {
    Ready fields;
    caf::node_id process = other_process();
    std::vector<char> bytes;
    caf::binary_serializer sink{system_, bytes};
    EXPECT_FALSE(
        sink(fields.process, fields.nonce, fields.failed, fields.error, process, first, numbers));
    return bytes;
  }

  Proxies proxies_{system_};
};

// They stay until the connection ends, whatever is refused: so each costs its sender some bytes.
TEST_F(ProxiesTest, AHundredBytesAddAtMostAHundredProxies) {
  const std::size_t without = ready_of(0, {}).size();
  ASSERT_LT(without, 100U);
  EXPECT_TRUE(take(ready_of(1000, std::vector<std::uint32_t>((100 - without) / 4, 7))));
  EXPECT_EQ(proxies_.registry.count_proxies(other_process()), 1U);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<std::uint32_t> numbers((100 - without) / 4);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<std::uint32_t>(random() % 2 == 0 ? i : random());
    std::vector<char> bytes = ready_of(random() >> (random() % 64), numbers);
    ASSERT_LE(bytes.size(), 100U);
    for (std::uint64_t flips = random() % 4; flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
    proxies_.registry.clear();
    take(bytes);
    std::size_t proxies = proxies_.registry.count_proxies(other_process());
    EXPECT_LE(proxies, numbers.size());
  }
}

TEST_F(ProxiesTest, NumbersThatNoActorHasAreRefused) {
  constexpr std::uint64_t kLast = std::numeric_limits<std::uint64_t>::max();
  EXPECT_TRUE(take(ready_of(kLast - 1, {0, 1, 2})));
  EXPECT_FALSE(take(ready_of(kLast - 1, {0, 1, 3}))) << "beyond the last number";
  EXPECT_FALSE(take(ready_of(7, std::vector<std::uint32_t>(kMostPacked + 1, 1))));
  Ready ready;
  ready.peers.resize(kMostPacked);
  EXPECT_TRUE(take(written(ready))) << "no actor";
  EXPECT_EQ(proxies_.registry.count_proxies(other_process()), 2U);
}

// A message names one process.
TEST_F(ProxiesTest, ActorsOfSeveralProcessesAreNotWritten) {
  const caf::actor own = system_.spawn(&idle);
  Ready ready;
  ready.peers = {caf::actor_cast<PeerActor>(own),
                 caf::actor_cast<PeerActor>(proxies_.registry.get_or_put(other_process(), 5))};
  std::vector<char> bytes;
  caf::binary_serializer sink{system_, bytes};
  EXPECT_TRUE(sink(ready));
  caf::anon_send_exit(own, caf::exit_reason::kill);
}

}  // namespace packed_lists_test
}  // namespace grapevine
