// Runs whose models are on devices, and whose ranks are in several processes: messages between
// processes come down to the host's memory and go up again beside the peers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "messages/codec.hpp"
#include "tests/actors/run/resident/resident_scenario.hpp"

namespace grapevine {
namespace staged_run_test {

using resident::make_resident;
using resident::run_well;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using virtual_run_test::kPresets;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;
using virtual_run_test::Waiting;

constexpr std::int32_t kRanksOfProcess = 2;

// As if each two ranks were a process: messages between processes are their bytes.
class ByProcess final : public Transport {
 public:
  ByProcess(std::shared_ptr<Transport> inner, std::int32_t workers)
      : inner_(std::move(inner)), workers_(workers) {}

  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override {
    return inner_->attach(rank, std::move(inbox));
  }
  void detach(Rank rank) override { inner_->detach(rank); }
  TransportCounters counters(Rank rank) const override { return inner_->counters(rank); }
  std::int32_t world_size() const override { return inner_->world_size(); }
  bool by_reference(Rank from, Rank to) const override {
    return process_of(from) == process_of(to);
  }
  void send(Envelope envelope) override {
    if (by_reference(envelope.from, envelope.to)) return inner_->send(std::move(envelope));
    ++between_;
    const std::vector<std::byte> bytes = encode(envelope);
    auto arrived = decode(bytes.data(), bytes.size(), {});
    ASSERT_TRUE(arrived.ok()) << arrived.error().message;
    inner_->send(*std::move(arrived));
  }

  std::int64_t between() const { return between_; }

 private:
  // The servers are in the first one.
  std::int32_t process_of(Rank rank) const { return rank < workers_ ? rank / kRanksOfProcess : 0; }

  const std::shared_ptr<Transport> inner_;
  const std::int32_t workers_;
  std::atomic<std::int64_t> between_{0};
};

RunConfig spread(RunConfig run) {
  run.transport = std::make_shared<ByProcess>(run.transport, run.workers());
  return run;
}

class StagedRun : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  template <class Make>
  static void expect_host_bits(const Make& make) {
    const RunResult host = run_well(spread(make()));
    fake::reset();
    RunConfig run = spread(make_resident(make(), 2));
    const auto transport = std::static_pointer_cast<ByProcess>(run.transport);
    const RunResult here = run_well(std::move(run));
    EXPECT_TRUE(at::equal(here.z.read(), host.z.read()));
    EXPECT_EQ(here.weight_sum, host.weight_sum);
    EXPECT_EQ(here.ledger.committed, host.ledger.committed);
    EXPECT_EQ(here.ledger.sent, here.ledger.received);
    EXPECT_GT(transport->between(), 0);
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
};

Scenario scenario_of(const std::string& preset) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.noise = 0.1;
  scenario.dimension = 3000;
  if (preset == "diloco" || preset == "slowmo" || preset == "noloco" ||
      preset == "decoupled-diloco")
    scenario.set = {{"local_steps", "4"}};
  return scenario;
}

TEST_F(StagedRun, EveryPresetHasTheBitsOfTheHost) {
  for (const std::string& preset : kPresets) {
    SCOPED_TRACE(preset);
    expect_host_bits([&preset] { return make_run(scenario_of(preset)); });
  }
}

TEST_F(StagedRun, CompressedVectorsHaveTheBitsOfTheHost) {
  const std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>>
      wirings = {{"ar", {{"compress", "int8"}}},
                 {"ar", {{"compress", "fp16"}}},
                 {"ar", {{"compress", "top-k"}, {"density", "0.1"}}},
                 {"d-psgd", {{"compress", "int8"}}},
                 {"d-psgd", {{"compress", "sign"}}},
                 {"downpour", {{"compress", "bf16"}}},
                 {"gem", {{"servers", "2"}}}};
  for (const auto& [preset, set] : wirings) {
    SCOPED_TRACE(preset + ", " + set.front().first + " = " + set.front().second);
    expect_host_bits([preset = preset, set = set] {
      Scenario scenario = scenario_of(preset);
      scenario.set = set;
      scenario.momentum = preset == "downpour" ? 0 : 0.9;
      return make_run(scenario);
    });
  }
}

TEST_F(StagedRun, RanksThatDieAndReturnHaveTheBitsOfTheHost) {
  for (const std::string preset : {"sgp", "ar", "ad-psgd", "eager-solo", "gem"}) {
    SCOPED_TRACE(preset);
    expect_host_bits([&preset] {
      RunConfig run = make_run(scenario_of(preset));
      run.deaths = {{2, std::chrono::milliseconds(120)}};
      run.returns = {{2, std::chrono::milliseconds(150)}};
      return run;
    });
  }
}

// A marker follows the messages before it through the stagers: no share is missing in a cut, and
// none is in it twice.
TEST_F(StagedRun, CheckpointsHaveEachMessageOnce) {
  for (const std::string preset : {"sgp", "osgp", "gem", "choco-sgd"}) {
    SCOPED_TRACE(preset);
    fake::reset();
    Scenario scenario = scenario_of(preset);
    scenario.steps = 60;
    scenario.steps_per_epoch = 3;
    scenario.folder = virtual_run_test::fresh_folder("staged_" + preset);
    run_well(spread(make_resident(scenario, 2)));
    EXPECT_THAT(fake::violations(), IsEmpty());
    for (const int epoch : {2, 5, 11, 17}) {
      const auto checkpoint =
          read_checkpoint(fmt::format("{}/epoch-{:04d}", scenario.folder, epoch));
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      Scenario rest = scenario;
      rest.folder.clear();
      RunConfig run = spread(make_resident(rest, 2));
      run.resume = *checkpoint;
      const RunResult result = run_well(std::move(run));
      virtual_run_test::expect_all_accounted(result);
      EXPECT_NEAR(result.weight_sum, run_well(make_run(rest)).weight_sum, 1e-9);
    }
  }
}

// Around a ring of four ranks two of the links are between processes: over each of them a step
// sends 6 of 4 parts of the model.
TEST_F(StagedRun, OnlyMessagesBetweenProcessesCrossTheHostsLink) {
  const auto traffic_of = [](bool by_process) {
    Scenario scenario = scenario_of("ar");
    scenario.set = {{"all_reduce", "ring"}};
    RunConfig run = make_resident(scenario, 1);
    if (by_process) run = spread(std::move(run));
    fake::reset();
    run_well(std::move(run));
    return fake::traffic();
  };
  const fake::Traffic one = traffic_of(false), several = traffic_of(true);
  const auto steps = static_cast<std::uint64_t>(Scenario().steps);
  const std::uint64_t sent = steps * 2 * 6 * (3000 / 4) * sizeof(float);
  EXPECT_EQ(several.down - one.down, sent);
  EXPECT_EQ(several.up - one.up, sent);
}

// Each wait that is left out is found.
TEST_F(StagedRun, MissingWaitsAreFound) {
  const std::map<fake::Fault, std::string> found = {
      {fake::Fault::ready_events_are_empty, "for which it has not waited"},
      {fake::Fault::host_does_not_wait, "pinned"}};
  for (const auto& [fault, words] : found) {
    fake::reset();
    fake::set_fault(fault);
    static_cast<void>(
        run_virtual(spread(make_resident(scenario_of("osgp"), 2)), std::make_shared<Quiet>()));
    EXPECT_THAT(fake::violations(), Contains(HasSubstr(words))) << static_cast<int>(fault);
  }
}

// The threads of a real run: a stager of each direction beside each peer.
TEST_F(StagedRun, OnThreadsOfItsOwn) {
  for (const std::string preset : {"ar", "osgp", "ad-psgd", "gem"}) {
    SCOPED_TRACE(preset);
    fake::reset();
    Scenario scenario = scenario_of(preset);
    scenario.delay = "";
    const auto observer = std::make_shared<Waiting>();
    Runtime runtime(spread(make_resident(scenario, 2)), observer);
    const RunResult result = observer->wait();
    ASSERT_FALSE(result.error) << result.error->message;
    virtual_run_test::expect_all_accounted(result);
    EXPECT_THAT(fake::violations(), IsEmpty());
  }
}

// In virtual time they run on the thread of the run.
TEST_F(StagedRun, StagersRunOnTheCpusThatTheyAreGiven) {
  const CpuSet own = thread_cpus().value();
  if (own.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  const CpuSet one = {*own.begin()};
  std::thread([&] {
    RunConfig run = spread(make_resident(scenario_of("sgp"), 2));
    for (PeerDevice& device : run.peer_devices) device.stager_cpus = one;
    run_well(std::move(run));
    EXPECT_EQ(thread_cpus().value(), one);
  }).join();
  EXPECT_EQ(thread_cpus().value(), own);
}

// A device that does not answer ends the run with the rank and the reason.
TEST_F(StagedRun, ADeviceThatDoesNotAnswerEndsTheRun) {
  RunConfig run = spread(make_resident(scenario_of("sgp"), 2));
  auto& outgoing = run.peer_devices[1].outgoing;
  outgoing = std::make_shared<resident::Silent>(outgoing);
  const RunResult result = run_virtual(std::move(run), std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_THAT(result.error->message,
              testing::AllOf(HasSubstr("rank 1"), HasSubstr("the host's memory: no answer")));
}

// As a transport does that copies where LibTorch has no memory left.
class Throwing final : public Transport {
 public:
  explicit Throwing(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override {
    return inner_->attach(rank, std::move(inbox));
  }
  void detach(Rank rank) override { inner_->detach(rank); }
  TransportCounters counters(Rank rank) const override { return inner_->counters(rank); }
  std::int32_t world_size() const override { return inner_->world_size(); }
  bool by_reference(Rank from, Rank to) const override { return inner_->by_reference(from, to); }
  void send(Envelope envelope) override {
    if (envelope.from == 1 && !by_reference(envelope.from, envelope.to))
      throw std::runtime_error("no memory is left");
    inner_->send(std::move(envelope));
  }

 private:
  const std::shared_ptr<Transport> inner_;
};

TEST_F(StagedRun, ATransportThatThrowsEndsTheRunWithItsReason) {
  RunConfig run = spread(make_resident(scenario_of("sgp"), 2));
  run.transport = std::make_shared<Throwing>(run.transport);
  const RunResult result = run_virtual(std::move(run), std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_THAT(result.error->message,
              testing::AllOf(HasSubstr("rank 1"), HasSubstr("no memory is left")));
}

}  // namespace staged_run_test
}  // namespace grapevine
