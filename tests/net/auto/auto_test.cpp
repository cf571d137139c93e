// The automatic transport: the contract over wires of all kinds at once, the choice of wires,
// processes that return over another one.
#include "net/auto/auto.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "net/auto/wires.hpp"
#include "net/ucx/ucx.hpp"
#include "tests/apps/process.hpp"
#include "tests/net/shm/shm_world.hpp"
#include "tests/net/ucx/tracked_memory.hpp"

namespace grapevine::conformance {
namespace auto_test {

using namespace std::chrono_literals;
using wires::Wire;

using Offer = std::set<Wire>;  // the wires of a process

constexpr std::size_t kRanksAtMost = 8;

std::unique_ptr<RemoteTransport> make_auto(const Offer& offer) {
  AutoParts parts;
  parts.tcp = make();
  if (offer.count(Wire::shm) > 0) parts.shm = make_shm();
  if (offer.count(Wire::ucx) > 0) {
    UcxOptions options;
    options.net_devices = "lo";
    options.device_memory = std::make_shared<TrackedMemory>(std::vector<bool>(kRanksAtMost, true));
    auto made = make_ucx_transport(options);
    EXPECT_TRUE(made.ok());
    if (made) parts.ucx = *std::move(made);
  }
  return make_auto_transport(std::move(parts));
}

class AutoWorld {
 public:
  // `offers`: of process p the entry p modulo their number.
  AutoWorld(std::int32_t world_size, std::int32_t ranks_each, std::vector<Offer> offers)
      : offers_(std::move(offers)) {
    for (Rank r = 0; r < world_size; ++r) process_of_.push_back(r / ranks_each);
    const std::int32_t processes = process_of_.back() + 1;
    for (std::int32_t p = 0; p < processes; ++p) {
      transports_.push_back(make_auto(offers_[static_cast<std::size_t>(p) % offers_.size()]));
      addresses_.push_back(transports_.back()->address());
    }
    run_threads(processes, [&](int p) {
      const Expected<void> connected = process(p).connect(
          addresses_, place(process_of_, p, processes), kTimeout, {kJob, nullptr});
      EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
    });
  }
  RemoteTransport& process(std::int32_t p) { return *transports_[static_cast<std::size_t>(p)]; }
  RemoteTransport& endpoint(Rank rank) {
    return process(process_of_[static_cast<std::size_t>(rank)]);
  }
  void end(std::int32_t p) { transports_[static_cast<std::size_t>(p)].reset(); }
  void make_again(std::int32_t p, const Offer& offer) {
    auto& transport = transports_[static_cast<std::size_t>(p)] = make_auto(offer);
    addresses_[static_cast<std::size_t>(p)] = transport->address();
  }
  void expect(std::int32_t p, std::int32_t other) {
    process(p).expect_process(other, "host" + std::to_string(other),
                              addresses_[static_cast<std::size_t>(other)]);
  }
  Expected<void> join_again(std::int32_t p) {
    return process(p).connect(addresses_,
                              place(process_of_, p, static_cast<std::int32_t>(addresses_.size())),
                              kTimeout, {kJob, nullptr, true, {}});
  }

 private:
  const std::vector<Offer> offers_;
  std::vector<std::int32_t> process_of_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

// Pairs of processes with an odd one among them use tcp, the others shared memory.
class Mixed : public AutoWorld {
 public:
  explicit Mixed(std::int32_t world_size)
      : AutoWorld(world_size, 1, {{Wire::shm}, {}, {Wire::shm}}) {}
};
class MixedTwoEach : public AutoWorld {
 public:
  explicit MixedTwoEach(std::int32_t world_size) : AutoWorld(world_size, 2, {{Wire::shm}}) {}
};
using Worlds = testing::Types<Mixed, MixedTwoEach>;
INSTANTIATE_TYPED_TEST_SUITE_P(Auto, TransportSuite, Worlds);

TEST(Auto, AllThreeWiresInOneJob) {
  if (!ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  // 0 and 1 share memory, 1 and 2 have UCX, 0 and 2 only tcp.
  AutoWorld world(3, 1, {{Wire::shm}, {Wire::shm, Wire::ucx}, {Wire::ucx}});
  // A device's memory goes over UCX alone.
  for (Rank from = 0; from < 3; ++from)
    for (Rank to = 0; to < 3; ++to)
      EXPECT_EQ(world.endpoint(from).takes_device_memory(from, to), from + to == 3)
          << from << " to " << to;
  std::vector<std::shared_ptr<RecordingInbox>> inboxes;
  for (Rank r = 0; r < 3; ++r) inboxes.push_back(attach(world.endpoint(r), r));
  constexpr int kMessages = 50;
  run_threads(3, [&](int from) {
    Rng rng(static_cast<std::uint64_t>(from));
    for (int i = 0; i < kMessages; ++i)
      for (Rank to = 0; to < 3; ++to) {
        Envelope e = numbered(from, to, i);
        std::get<Chunk>(e.payload).data = random_bits(rng, rng() % 50000, at::kByte);
        world.endpoint(from).send(std::move(e));
      }
  });
  for (Rank to = 0; to < 3; ++to) {
    ASSERT_TRUE(inboxes[static_cast<std::size_t>(to)]->wait_messages(3 * kMessages));
    for (Rank from = 0; from < 3; ++from)
      EXPECT_TRUE(counts_up(inboxes[static_cast<std::size_t>(to)]->messages_from(from)));
  }
  world.endpoint(2).detach(2);
  for (const int r : {0, 1}) {
    ASSERT_TRUE(inboxes[static_cast<std::size_t>(r)]->wait_down(2));
    EXPECT_EQ(inboxes[static_cast<std::size_t>(r)]->down_count(2), 1);
  }
}

TEST(Auto, CountsTheBytesThatWait) {
  AutoWorld world(2, 1, {{}});
  expect_queue_is_counted(world.endpoint(0), world.endpoint(1));
}

TEST(Auto, CountsWithoutALock) {
  AutoWorld world(2, 1, {{}});
  expect_count_takes_no_lock(world.endpoint(0), world.endpoint(1));
}

TEST(Auto, AProcessMayReturnOverAnotherWire) {
  AutoWorld world(3, 1, {{Wire::shm}});
  std::vector<std::shared_ptr<RecordingInbox>> inboxes;
  for (Rank r = 0; r < 3; ++r) inboxes.push_back(attach(world.endpoint(r), r));
  std::ptrdiff_t times = 0;
  for (const Offer& offer : {Offer{}, Offer{Wire::shm}, Offer{}}) {
    ++times;
    world.end(1);
    for (const int r : {0, 2})
      ASSERT_TRUE(inboxes[static_cast<std::size_t>(r)]->wait_down(1, times));
    for (const int r : {0, 2}) EXPECT_FALSE(world.process(r).is_up(1));
    world.make_again(1, offer);
    for (const int r : {0, 2}) world.expect(r, 1);
    const auto joined = world.join_again(1);
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    inboxes[1] = attach(world.endpoint(1), 1);
    for (const int r : {0, 2}) {
      ASSERT_TRUE(eventually([&] { return world.process(r).is_up(1); }));
      world.endpoint(r).send(numbered(r, 1, 0));
      world.endpoint(1).send(numbered(1, r, 0));
      ASSERT_TRUE(
          inboxes[static_cast<std::size_t>(r)]->wait_messages(static_cast<std::size_t>(times)));
    }
    ASSERT_TRUE(inboxes[1]->wait_messages(2));
    for (const int r : {0, 2})
      EXPECT_EQ(inboxes[static_cast<std::size_t>(r)]->down_count(1), times);
  }
}

// Before the first message: a message is prepared for the wire that it will use.
TEST(Auto, TakesDeviceMemoryAsTheWireOfAReturnedProcessDoes) {
  if (!ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  AutoWorld world(2, 1, {{Wire::ucx}});
  std::vector<std::shared_ptr<RecordingInbox>> inboxes;
  for (Rank r = 0; r < 2; ++r) inboxes.push_back(attach(world.endpoint(r), r));
  EXPECT_TRUE(world.endpoint(0).takes_device_memory(0, 1));
  std::ptrdiff_t times = 0;
  for (const bool has_ucx : {false, true}) {
    world.end(1);
    ASSERT_TRUE(inboxes[0]->wait_down(1, ++times));
    world.make_again(1, has_ucx ? Offer{Wire::ucx} : Offer{});
    world.expect(0, 1);
    const auto joined = world.join_again(1);
    ASSERT_TRUE(joined.ok()) << joined.error().message;
    ASSERT_TRUE(eventually([&] { return world.process(0).is_up(1); }));
    EXPECT_EQ(world.endpoint(0).takes_device_memory(0, 1), has_ucx);
  }
}

TEST(Auto, AddressesOfOtherTransportsAreNamed) {
  auto first = make_auto({});
  const auto connected = first->connect({first->address(), "127.0.0.1:1"}, one_each(0, 2), 1s);
  ASSERT_FALSE(connected.ok());
  EXPECT_NE(connected.error().message.find("process 1"), std::string::npos);
}

TEST(Wires, DamagedAddressesAreRefused) {
  const wires::WireAddresses addresses = {{Wire::shm, std::string("a\0b", 3)}, {Wire::tcp, "h:1"}};
  const std::string packed = wires::pack_addresses(addresses);
  const auto again = wires::unpack_addresses(packed);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, addresses);
  // Cut off anywhere but between two addresses, it is none.
  for (std::size_t size = 0; size < packed.size(); ++size) {
    const auto cut = wires::unpack_addresses(packed.substr(0, size));
    if (cut) {
      EXPECT_EQ(wires::pack_addresses(*cut), packed.substr(0, size)) << size;
    }
  }
  std::string other = packed;
  other[5] = 9;  // a wire that there is not
  EXPECT_FALSE(wires::unpack_addresses(other).ok());
  other[5] = packed[5] + 2;  // the same one twice
  EXPECT_FALSE(wires::unpack_addresses(other).ok());
}

TEST(Wires, SharedMemoryIsForProcessesThatReachEachOther) {
  auto transport = make_shm();
  wires::WireAddresses own = {{Wire::shm, transport->address()}, {Wire::tcp, "h:1"}};
  const wires::WireAddresses other = own;
  EXPECT_EQ(*wires::choose_wire(own, other), Wire::shm);
  transport.reset();  // its socket is gone
  EXPECT_EQ(*wires::choose_wire(own, other), Wire::tcp);
  own[Wire::ucx] = "u";
  EXPECT_EQ(*wires::choose_wire(own, other), Wire::tcp) << "only one of them has UCX";
  EXPECT_FALSE(wires::choose_wire(own, {}).ok());
}

TEST(Wires, AFastDeviceHasAnActivePort) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(wires::has_fast_device((folder.path() / "none").string()));
  const auto port = folder.path() / "mlx5_0" / "ports" / "1";
  std::filesystem::create_directories(port);
  std::ofstream(port / "state") << "1: DOWN\n";
  EXPECT_FALSE(wires::has_fast_device(folder.path().string()));
  std::ofstream(port / "state") << "4: ACTIVE\n";
  EXPECT_TRUE(wires::has_fast_device(folder.path().string()));
}

TEST(Wires, TheLineOfARunNamesThem) {
  EXPECT_EQ(wires::describe(0, {{1, Wire::shm}, {2, Wire::shm}, {3, Wire::tcp}}),
            "process 0 reaches 1 and 2 over shm, 3 over tcp");
}

}  // namespace auto_test
}  // namespace grapevine::conformance
