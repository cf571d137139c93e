// Runs whose models are on devices, over a transport that reads and writes the devices' memory
// itself, as UCX does: messages with one tensor are not copied to the host's memory.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/run/peer/device_receives.hpp"
#include "messages/codec.hpp"
#include "messages/device/model_vectors.hpp"
#include "net/auto/auto.hpp"
#include "net/tcp/tcp.hpp"
#include "tests/actors/run/resident/several_processes.hpp"

namespace grapevine {
namespace direct_run_test {

using resident::make_resident;
using resident::run_well;
using resident::scenario_of;
using resident::with_each;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using virtual_run_test::kPresets;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr int kDevices = 2;

// A network device that reads and writes the memory of the processes' devices in no stream.
class NetworkDevice final : public resident::ByProcess {
 public:
  NetworkDevice(std::shared_ptr<Transport> inner, std::int32_t workers)
      : ByProcess(std::move(inner), workers) {
    const std::vector<bool> all(static_cast<std::size_t>(world_size()), true);
    for (int i = 0; i < kDevices; ++i)
      receives_.push_back(std::make_unique<DeviceReceives>(fake::open_device(i, "the transport"),
                                                           DeviceMemory::Kind::host, all));
  }

  bool takes_device_memory(Rank from, Rank to) const override { return !by_reference(from, to); }
  void send(Envelope envelope) override {
    if (!by_reference(envelope.from, envelope.to)) envelope = arrived(envelope);
    ByProcess::send(std::move(envelope));
  }

  std::uint64_t queued_bytes() const override { return queued_bytes_; }

  std::int64_t from_devices() const { return from_devices_; }
  void say_queued(std::uint64_t bytes) { queued_bytes_ = bytes; }

 private:
  Envelope arrived(const Envelope& envelope) {
    const std::vector<FrozenTensor> payload = payload_of(envelope);
    const FrozenTensor* const only = only_tensor(payload);
    if (only == nullptr || only->device().is_cpu()) {
      const std::vector<std::byte> bytes = encode(envelope);  // refuses tensors of a device
      return *decode(bytes.data(), bytes.size(), {});
    }
    ++from_devices_;
    Envelope copy = envelope;
    each_model_vector(copy.payload, [&](FrozenTensor& t) { t = on_device(t, envelope.to); });
    each_packed_on_device(copy.payload, [](FrozenTensor& t) {
      at::Tensor here = at::empty(t.sizes(), at::TensorOptions(t.dtype()));
      fake::copy_outside(here, t.read());
      t = FrozenTensor::freeze(std::move(here));
    });
    return copy;
  }
  FrozenTensor on_device(const FrozenTensor& t, Rank to) {
    const std::lock_guard<std::mutex> lock(mutex_);
    DeviceReceives& receives = *receives_[static_cast<std::size_t>(to % kDevices)];
    const auto entered = receives.enter();
    at::Tensor here = receives.allocate(to, t.sizes(), t.dtype());
    fake::copy_outside(here, t.read());
    return FrozenTensor::freeze(std::move(here));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<DeviceReceives>> receives_;  // by device; guarded by mutex_
  std::atomic<std::int64_t> from_devices_{0};
  std::atomic<std::uint64_t> queued_bytes_{0};
};

RunConfig over_network_device(RunConfig run) {
  run.transport = std::make_shared<NetworkDevice>(run.transport, run.workers());
  return run;
}
RunConfig direct(RunConfig run) {
  return over_network_device(make_resident(std::move(run), kDevices));
}

class DirectRun : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  // Returns how many messages left from the memory of a device.
  template <class Make>
  static std::int64_t expect_host_bits(const Make& make) {
    return resident::expect_bits_of_host<NetworkDevice>(make, direct, over_network_device)
        ->from_devices();
  }
};

TEST_F(DirectRun, EveryPresetHasTheBitsOfTheHost) {
  // Their messages have the tensors of a packed vector, or a model and the steps of all ranks.
  const std::set<std::string> with_several = {"topk",      "topk2",      "gtopk",
                                              "choco-sgd", "sparseloco", "ad-psgd"};
  with_each(kPresets, [&](const std::string& preset) {
    const std::int64_t sent = expect_host_bits([&] { return make_run(scenario_of(preset)); });
    EXPECT_EQ(sent > 0, with_several.count(preset) == 0) << sent << " messages of one vector";
  });
}

TEST_F(DirectRun, CompressedVectorsHaveTheBitsOfTheHost) {
  for (const std::string compress : {"int8", "fp16", "top-k"}) {
    SCOPED_TRACE(compress);
    expect_host_bits([&compress] {
      Scenario scenario = scenario_of("ar");
      scenario.set = {{"compress", compress}};
      if (compress == "top-k") scenario.set.emplace_back("density", "0.1");
      return make_run(scenario);
    });
  }
}

TEST_F(DirectRun, RanksThatDieAndReturnHaveTheBitsOfTheHost) {
  with_each({"sgp", "ar", "gem"}, [](const std::string& preset) {
    expect_host_bits([&] { return resident::make_returning_run(preset); });
  });
}

// Messages on their way when a cut is made are in the checkpoint, wherever their tensors are.
TEST_F(DirectRun, CheckpointsHaveEachMessageOnce) {
  with_each({"osgp", "gem"}, [](const std::string& preset) {
    Scenario scenario = scenario_of(preset);
    scenario.steps = 40;
    resident::expect_each_message_once(scenario, {2, 11}, "direct_" + preset, direct);
  });
}

// The same bytes cross it as in one process, where messages go by reference.
TEST_F(DirectRun, NoMessageOfOneVectorCrossesTheHostsLink) {
  const auto traffic_of = [](bool by_network) {
    Scenario scenario = scenario_of("ar");
    scenario.set = {{"all_reduce", "ring"}};
    RunConfig run = make_resident(make_run(scenario), kDevices);
    if (by_network) run = over_network_device(std::move(run));
    fake::reset();
    run_well(std::move(run));
    return fake::traffic();
  };
  const fake::Traffic one = traffic_of(false), several = traffic_of(true);
  EXPECT_EQ(several.down, one.down);
  EXPECT_EQ(several.up, one.up);
}

// What a network device reads and writes in no stream has to be awaited by the host.
TEST_F(DirectRun, MissingWaitsAreFound) {
  for (const fake::Fault fault :
       {fake::Fault::ready_events_are_empty, fake::Fault::host_does_not_wait}) {
    fake::reset();
    fake::set_fault(fault);
    static_cast<void>(
        run_virtual(direct(make_run(scenario_of("osgp"))), std::make_shared<Quiet>()));
    EXPECT_THAT(fake::violations(),
                Contains(HasSubstr("network device' reads what was written by")))
        << static_cast<int>(fault);
  }
}

TEST_F(DirectRun, OnThreadsOfItsOwn) {
  with_each({"ar", "osgp", "gem"}, [](const std::string& preset) {
    resident::expect_sound_on_threads(scenario_of(preset), direct);
  });
}

TEST_F(DirectRun, ADeviceThatDoesNotAnswerEndsTheRun) {
  resident::expect_silent_device_ends(direct(make_run(scenario_of("sgp"))), "no answer");
}

// They would keep memory of the device.
TEST_F(DirectRun, MessagesForSlowLinksWaitInTheHostsMemory) {
  const Scenario scenario = scenario_of("sgp");
  const std::uint64_t few = 3 * scenario.dimension * sizeof(float) + (std::uint64_t{64} << 20);
  for (const std::uint64_t queued : {few, few + 1}) {
    fake::reset();
    RunConfig run = direct(make_run(scenario));
    const auto network = std::static_pointer_cast<NetworkDevice>(run.transport);
    network->say_queued(queued);
    run_well(std::move(run));
    EXPECT_EQ(network->from_devices() > 0, queued == few);
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
}

// ---- Memory for what arrives

class DeviceReceivesTest : public DirectRun {
 protected:
  // Rank 0 is on device 0, rank 1 in the host's memory.
  static DeviceReceives receives(std::shared_ptr<DeviceRuntime> device) {
    return {std::move(device), DeviceMemory::Kind::host, {true, false}};
  }
};

TEST_F(DeviceReceivesTest, IsThereForRanksOnTheDevice) {
  DeviceReceives memory = receives(fake::open_device(0, "the transport"));
  const auto entered = memory.enter();
  const at::Tensor here = memory.allocate(0, {3, 4}, at::kFloat);
  ASSERT_TRUE(here.defined());
  EXPECT_EQ(here.device(), fake::device(0));
  EXPECT_EQ(here.sizes(), at::IntArrayRef({3, 4}));
  EXPECT_FALSE(memory.allocate(1, {3, 4}, at::kFloat).defined());
}

// Earlier work of the stream may still use it.
TEST_F(DeviceReceivesTest, HasBeenAwaitedByTheHost) {
  for (const bool waits : {true, false}) {
    fake::reset();
    if (!waits) fake::set_fault(fake::Fault::host_does_not_wait);
    DeviceReceives memory = receives(fake::open_device(0, "the transport"));
    const auto entered = memory.enter();
    const at::Tensor here = memory.allocate(0, {4}, at::kFloat);
    fake::copy_outside(here, at::ones({4}, at::kFloat));
    EXPECT_TRUE(at::equal(fake::peek(here), at::ones({4}, at::kFloat)));
    EXPECT_EQ(fake::violations().empty(), waits);
  }
}

TEST_F(DeviceReceivesTest, IsTheHostsWhereTheDeviceDoesNotAnswer) {
  DeviceReceives memory =
      receives(std::make_shared<resident::Silent>(fake::open_device(0, "the transport")));
  const auto entered = memory.enter();
  EXPECT_FALSE(memory.allocate(0, {4}, at::kFloat).defined());
}

// It answers where it is told to, and counts the questions.
class Answering final : public resident::Silent {
 public:
  explicit Answering(std::shared_ptr<DeviceRuntime> inner) : Silent(std::move(inner)) {}
  Expected<void> host_wait(const EventHandle& event, Duration limit) override {
    ++asked;
    return answers ? Expected<void>() : Silent::host_wait(event, limit);
  }
  bool answers = false;
  int asked = 0;
};

// A try empties the allocator's cache, or delays all links.
TEST_F(DeviceReceivesTest, IsNotTriedForEachMessageWhereItFails) {
  const auto device = std::make_shared<Answering>(fake::open_device(0, "the transport"));
  DeviceReceives memory = receives(device);
  const auto entered = memory.enter();
  const auto arrive = [&](int messages) {
    int here = 0;
    for (int i = 0; i < messages; ++i) here += memory.allocate(0, {4}, at::kFloat).defined();
    return here;
  };
  int expected = 0;
  for (int pause = DeviceReceives::kFirstPause; pause <= DeviceReceives::kLongestPause;
       pause *= 2) {
    EXPECT_EQ(arrive(1 + pause), 0);
    EXPECT_EQ(device->asked, ++expected);
  }
  EXPECT_EQ(arrive(1 + DeviceReceives::kLongestPause), 0);
  EXPECT_EQ(device->asked, ++expected) << "the longest pause";
  device->answers = true;
  EXPECT_EQ(arrive(3), 3);
  device->answers = false;
  EXPECT_EQ(arrive(1 + DeviceReceives::kFirstPause), 0);
  EXPECT_EQ(device->asked, expected + 4);
  EXPECT_FALSE(memory.allocate(1, {4}, at::kFloat).defined());
  EXPECT_EQ(device->asked, expected + 4) << "of a rank in the host's memory";
}

// By name alone.
class NamedCuda final : public resident::Silent {
 public:
  explicit NamedCuda(int index)
      : Silent(fake::open_device(0, "")), index_(static_cast<at::DeviceIndex>(index)) {}
  at::Device device() const override { return {at::kCUDA, index_}; }

 private:
  const at::DeviceIndex index_;
};

TEST_F(DeviceReceivesTest, IsForOneCudaDevice) {
  const auto first = std::make_shared<NamedCuda>(0), second = std::make_shared<NamedCuda>(1);
  const auto several = memory_for_receives({first, nullptr, second});
  ASSERT_TRUE(several.ok());
  EXPECT_EQ(*several, nullptr);
  const auto one = memory_for_receives({first, nullptr, first});
  if (one.ok()) {
    EXPECT_NE(*one, nullptr);
  } else {
    EXPECT_EQ(one.error().code, Errc::unavailable) << one.error().message;
  }
}

TEST_F(DeviceReceivesTest, IsNotThereForOtherDevices) {
  const auto first = fake::open_device(0, "rank 0"), second = fake::open_device(1, "rank 1");
  for (const auto& devices : std::vector<std::vector<std::shared_ptr<DeviceRuntime>>>{
           {}, {nullptr, nullptr}, {first, nullptr}, {first, second}}) {
    const auto memory = memory_for_receives(devices);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(*memory, nullptr);
  }
}

// ---- Another wire than the one that a message was prepared for

struct FirstMessage : Inbox {
  void deliver(Envelope envelope) override { message.set_value(std::move(envelope)); }
  void peer_down(Rank, const std::string&) override {}
  std::promise<Envelope> message;
};

TEST_F(DirectRun, TheAutomaticTransportBringsATensorToTheHostForAWireThatNeedsIt) {
  std::vector<std::unique_ptr<RemoteTransport>> transports;
  std::vector<std::string> addresses;
  for (int p = 0; p < 2; ++p) {
    TcpOptions options;
    options.host = "127.0.0.1";
    auto tcp = make_tcp_transport(options);
    ASSERT_TRUE(tcp.ok()) << tcp.error().message;
    AutoParts parts;
    parts.tcp = *std::move(tcp);
    transports.push_back(make_auto_transport(std::move(parts)));
    addresses.push_back(transports.back()->address());
  }
  const auto connect = [&](std::int32_t p) {
    return transports[static_cast<std::size_t>(p)]->connect(addresses, {{0, 1}, {"a", "b"}, p},
                                                            std::chrono::minutes(1));
  };
  auto other = std::async(std::launch::async, connect, 1);
  ASSERT_TRUE(connect(0).ok());
  ASSERT_TRUE(other.get().ok());
  const auto inbox = std::make_shared<FirstMessage>();
  ASSERT_TRUE(transports[0]->attach(0, std::make_shared<FirstMessage>()).ok());
  ASSERT_TRUE(transports[1]->attach(1, inbox).ok());
  Envelope e;
  e.from = 0;
  e.to = 1;
  e.payload = Share{0, 1.0, FrozenTensor::freeze(at::ones({5}, at::kFloat).to(fake::device(0)))};
  transports[0]->send(std::move(e));
  auto arrived = inbox->message.get_future();
  ASSERT_EQ(arrived.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  const Envelope message = arrived.get();
  EXPECT_TRUE(at::equal(std::get<Share>(message.payload).x.read(), at::ones({5}, at::kFloat)));
}

}  // namespace direct_run_test
}  // namespace grapevine
