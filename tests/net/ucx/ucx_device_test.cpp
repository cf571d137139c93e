// The UCX transport from and into a device's memory, which host memory plays. UCX's own way through
// a GPU's memory is not in here.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef GRAPEVINE_UCX
#include "net/ucx/ucx_worker.hpp"
#endif
#include "tests/conformance/transport_suite.hpp"
#include "tests/net/ucx/tracked_memory.hpp"
#include "tests/net/ucx/ucx_testing.hpp"

#ifdef GRAPEVINE_UCX
namespace grapevine::conformance {
namespace ucx_device_test {

// All memory is the device's, on both sides.
class Everywhere final : public DeviceMemory {
 public:
  Kind kind() const override { return Kind::host; }
  std::shared_ptr<void> enter() override { return nullptr; }
  bool contains(const FrozenTensor&) const override { return true; }
  at::Tensor allocate(Rank, at::IntArrayRef sizes, at::ScalarType dtype) override {
    return at::empty(sizes, at::TensorOptions(dtype));
  }
};

using Memories = std::vector<std::shared_ptr<DeviceMemory>>;

// One transport per rank, as if each lived in a process of its own, with its entry of `memories`.
class DeviceWorld {
 public:
  DeviceWorld(const Memories& memories, bool same_host) {
    const auto count = static_cast<std::int32_t>(memories.size());
    std::vector<std::string> addresses;
    for (const auto& memory : memories) {
      UcxOptions options = loopback_options();
      options.device_memory = memory;
      auto made = make_ucx_transport(options);
      GRAPEVINE_CHECK(made.ok(), made.error().message);
      transports_.push_back(*std::move(made));
      addresses.push_back(transports_.back()->address());
    }
    run_threads(count, [&](int p) {
      const Expected<void> connected = transports_[static_cast<std::size_t>(p)]->connect(
          addresses, placement(p, count, same_host), kHangDeadline);
      EXPECT_TRUE(connected.ok()) << (connected.ok() ? "" : connected.error().message);
    });
  }
  Transport& endpoint(Rank rank) { return *transports_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<RemoteTransport>> transports_;
};

template <bool kSameHost>
class AllOnDevice : public DeviceWorld {
 public:
  static constexpr bool kReceivesOnDevice = true;

  explicit AllOnDevice(std::int32_t world_size)
      : DeviceWorld(Memories(static_cast<std::size_t>(world_size), std::make_shared<Everywhere>()),
                    kSameHost) {}
};
using Worlds = testing::Types<AllOnDevice<true>, AllOnDevice<false>>;
INSTANTIATE_TYPED_TEST_SUITE_P(UcxDevice, TransportSuite, Worlds);

// Two processes with a rank each. The parameter: both on one host.
class UcxDevice : public testing::TestWithParam<bool> {
 protected:
  static constexpr std::size_t kSizes[] = {8, 1000, std::size_t{1} << 20, std::size_t{8} << 20};

  static std::shared_ptr<TrackedMemory> memory(bool sender, bool receiver) {
    return std::make_shared<TrackedMemory>(std::vector<bool>{sender, receiver});
  }
  // Null: a process in the host's memory.
  void start(std::shared_ptr<TrackedMemory> sender, std::shared_ptr<TrackedMemory> receiver) {
    sender_ = std::move(sender);
    receiver_ = std::move(receiver);
    world_.emplace(Memories{sender_, receiver_}, GetParam());
    for (const Rank rank : {0, 1})
      ASSERT_TRUE(world_->endpoint(rank).attach(rank, inboxes_[static_cast<std::size_t>(rank)]));
  }
  FrozenTensor on_device(const FrozenTensor& t) const {
    at::Tensor copy = sender_->make(t.sizes(), t.dtype());
    std::memcpy(copy.data_ptr(), t.raw(), t.nbytes());
    FrozenTensor frozen = FrozenTensor::freeze(std::move(copy));
    EXPECT_TRUE(sender_->holds(frozen));
    return frozen;
  }
  void send(Payload payload) {
    Envelope e;
    e.from = 0;
    e.to = 1;
    e.payload = std::move(payload);
    world_->endpoint(0).send(std::move(e));
  }
  // Of messages of one tensor, all sizes: whether each arrived on the device.
  std::vector<bool> arrive_on_device(bool from_device) {
    Rng rng(41);
    std::vector<FrozenTensor> sent;
    for (const std::size_t bytes : kSizes) {
      const FrozenTensor data = random_bits(rng, bytes, at::kFloat);
      sent.push_back(from_device ? on_device(data) : data);
      send(Share{1, 0.5, sent.back()});
    }
    EXPECT_TRUE(inboxes_[1]->wait_messages(sent.size()));
    std::vector<bool> there;
    const std::vector<Envelope> received = inboxes_[1]->messages_from(0);
    for (std::size_t i = 0; i < received.size(); ++i) {
      const FrozenTensor& x = std::get<Share>(received[i].payload).x;
      EXPECT_TRUE(same_bits(x, sent[i])) << sent[i].nbytes() << " bytes";
      there.push_back(receiver_ != nullptr && receiver_->holds(x));
    }
    return there;
  }

  std::vector<std::shared_ptr<RecordingInbox>> inboxes_ = {std::make_shared<RecordingInbox>(),
                                                           std::make_shared<RecordingInbox>()};
  std::shared_ptr<TrackedMemory> sender_, receiver_;
  std::optional<DeviceWorld> world_;
};

INSTANTIATE_TEST_SUITE_P(Hosts, UcxDevice, testing::Bool(),
                         [](const auto& info) { return info.param ? "Same" : "Other"; });

// However small: the data of an eager message would be copied by the host.
TEST_P(UcxDevice, EachVectorGoesFromDeviceToDevice) {
  start(memory(true, true), memory(true, true));
  EXPECT_TRUE(world_->endpoint(0).takes_device_memory(0, 1));
  EXPECT_FALSE(world_->endpoint(0).takes_device_memory(0, 0)) << "by reference";
  EXPECT_EQ(arrive_on_device(true), std::vector<bool>(4, true));
  EXPECT_EQ(receiver_->allocations(), 4);
  EXPECT_EQ(sender_->allocations(), 0);
  EXPECT_EQ(sender_->foreign_calls() + receiver_->foreign_calls(), 0);
}

TEST_P(UcxDevice, ARankInTheHostsMemoryReceivesThere) {
  start(memory(true, false), memory(true, false));
  EXPECT_EQ(arrive_on_device(true), std::vector<bool>(4, false));
  EXPECT_EQ(receiver_->allocations(), 0);
}

TEST_P(UcxDevice, AProcessWithoutADeviceReceivesInTheHostsMemory) {
  start(memory(true, true), nullptr);
  EXPECT_FALSE(world_->endpoint(1).takes_device_memory(1, 0));
  EXPECT_EQ(arrive_on_device(true), std::vector<bool>(4, false));
}

// Small ones are eager and arrive in the host's memory, from which a stager uploads them.
TEST_P(UcxDevice, LargeVectorsOfTheHostArriveOnTheDevice) {
  start(nullptr, memory(true, true));
  const std::vector<bool> there = arrive_on_device(false);
  EXPECT_FALSE(there.front());
  EXPECT_TRUE(there.back());
}

// Nothing but a vector of a model, alone in its message, arrives on the device.
TEST_P(UcxDevice, AllElseArrivesInTheHostsMemory) {
  start(memory(true, true), memory(true, true));
  Rng rng(42);
  constexpr std::size_t kLarge = std::size_t{1} << 20;
  const auto floats = [&] { return random_bits(rng, kLarge, at::kFloat); };
  const std::vector<Payload> payloads = {
      Swap{1, false, floats(), random_bits(rng, 64, at::kLong)},
      Extension{"mine", {}, {}, {floats(), {}, floats()}},
      PackedChunk{1, 0, 0, {{}, on_device(floats()), {}}},
      Chunk{1, 0, 0, random_bits(rng, kLarge, at::kInt)},
      ProgressUpdate{random_bits(rng, kLarge, at::kLong)},
      StateChunk{1, 0, static_cast<std::int64_t>(kLarge), random_bits(rng, kLarge, at::kByte)}};
  for (const Payload& payload : payloads) send(payload);
  ASSERT_TRUE(inboxes_[1]->wait_messages(payloads.size()));
  const std::vector<Envelope> received = inboxes_[1]->messages_from(0);
  for (std::size_t i = 0; i < payloads.size(); ++i) {
    const auto before = payload_of({0, 1, {}, payloads[i]}), after = payload_of(received[i]);
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t t = 0; t < after.size(); ++t)
      EXPECT_TRUE(same_bits(after[t], before[t])) << "message " << i << ", tensor " << t;
  }
  EXPECT_EQ(receiver_->allocations(), 0);
}

TEST_P(UcxDevice, CountsBytesAsOfTheHostsMemory) {
  start(memory(true, true), memory(true, true));
  Rng rng(43);
  const FrozenTensor data = on_device(random_bits(rng, std::size_t{1} << 20, at::kFloat));
  send(Share{1, 0.5, data});
  ASSERT_TRUE(inboxes_[1]->wait_messages(1));
  EXPECT_EQ(world_->endpoint(0).counters(0).bytes_sent,
            wire_size(inboxes_[1]->messages_from(0).front()));
  EXPECT_TRUE(eventually([&] { return world_->endpoint(0).queued_bytes() == 0; }));
}

// The memory of a message serves until UCX has sent it, and no longer.
TEST_P(UcxDevice, LeavesNoMemoryInUse) {
  start(memory(true, true), memory(true, true));
  arrive_on_device(true);
  EXPECT_TRUE(eventually([&] { return sender_->blocks_in_use() == 0; }));
  for (auto& inbox : inboxes_) inbox.reset();
  world_.reset();
  EXPECT_EQ(receiver_->blocks_in_use(), 0U);
}

// UCX says which kinds of memory it reaches: Debian's has no CUDA.
TEST(UcxDevices, AKindThatUcxDoesNotReachIsNotUsed) {
  const auto worker = ucx::Worker::make(loopback_options());
  ASSERT_TRUE(worker.ok()) << worker.error().message;
  if (((*worker)->memory_types() & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) != 0)
    GTEST_SKIP() << "this UCX reaches the memory of CUDA devices";
  class Cuda final : public DeviceMemory {
   public:
    Kind kind() const override { return Kind::cuda; }
    std::shared_ptr<void> enter() override {
      entered = true;
      return std::make_shared<int>(0);
    }
    std::atomic<bool> entered{false};
    bool contains(const FrozenTensor&) const override { return true; }
    at::Tensor allocate(Rank, at::IntArrayRef, at::ScalarType) override { return {}; }
  };
  const auto cuda = std::make_shared<Cuda>();
  DeviceWorld world({cuda, cuda}, false);
  EXPECT_FALSE(world.endpoint(0).takes_device_memory(0, 1));
  EXPECT_FALSE(cuda->entered);
}

TEST(UcxDevices, ADeviceThatCannotBeEnteredIsNotUsed) {
  class Broken final : public DeviceMemory {
   public:
    Kind kind() const override { return Kind::host; }
    std::shared_ptr<void> enter() override { throw std::runtime_error("no context"); }
    bool contains(const FrozenTensor&) const override { return true; }
    at::Tensor allocate(Rank, at::IntArrayRef, at::ScalarType) override { return {}; }
  };
  const auto broken = std::make_shared<Broken>();
  DeviceWorld world({broken, broken}, false);
  EXPECT_FALSE(world.endpoint(0).takes_device_memory(0, 1));
  const auto inbox = std::make_shared<RecordingInbox>();
  for (const Rank rank : {0, 1}) ASSERT_TRUE(world.endpoint(rank).attach(rank, inbox).ok());
  world.endpoint(0).send(numbered(0, 1, 0));
  EXPECT_TRUE(inbox->wait_messages(1));
}

}  // namespace ucx_device_test
}  // namespace grapevine::conformance
#endif
