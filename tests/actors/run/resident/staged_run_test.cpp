// Runs whose models are on devices, and whose ranks are in several processes: messages between
// processes come down to the host's memory and go up again beside the peers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "messages/codec.hpp"
#include "tests/actors/run/resident/several_processes.hpp"

namespace grapevine {
namespace staged_run_test {

using resident::make_resident;
using resident::run_well;
using resident::scenario_of;
using resident::with_each;
using testing::Contains;
using testing::HasSubstr;
using virtual_run_test::kPresets;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

// Messages between processes are their bytes.
class AsBytes final : public resident::ByProcess {
 public:
  using ByProcess::ByProcess;

  void send(Envelope envelope) override {
    if (by_reference(envelope.from, envelope.to)) return ByProcess::send(std::move(envelope));
    ++between_;
    const std::vector<std::byte> bytes = encode(envelope);
    auto arrived = decode(bytes.data(), bytes.size(), {});
    ASSERT_TRUE(arrived.ok()) << arrived.error().message;
    ByProcess::send(*std::move(arrived));
  }

  std::int64_t between() const { return between_; }

 private:
  std::atomic<std::int64_t> between_{0};
};

RunConfig spread(RunConfig run) {
  run.transport = std::make_shared<AsBytes>(run.transport, run.workers());
  return run;
}

RunConfig staged(RunConfig run) { return spread(make_resident(std::move(run), 2)); }

class StagedRun : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override { fake::reset(); }

  template <class Make>
  static void expect_host_bits(const Make& make) {
    EXPECT_GT(resident::expect_bits_of_host<AsBytes>(make, staged, spread)->between(), 0);
  }
};

TEST_F(StagedRun, EveryPresetHasTheBitsOfTheHost) {
  with_each(kPresets, [](const std::string& preset) {
    expect_host_bits([&] { return make_run(scenario_of(preset)); });
  });
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
  with_each({"sgp", "ar", "ad-psgd", "eager-solo", "gem"}, [](const std::string& preset) {
    expect_host_bits([&] { return resident::make_returning_run(preset); });
  });
}

// A marker follows the messages before it through the stagers: no share is missing in a cut, and
// none is in it twice.
TEST_F(StagedRun, CheckpointsHaveEachMessageOnce) {
  with_each({"sgp", "osgp", "gem", "choco-sgd"}, [](const std::string& preset) {
    Scenario scenario = scenario_of(preset);
    scenario.steps = 60;
    resident::expect_each_message_once(scenario, {2, 5, 11, 17}, "staged_" + preset, staged);
  });
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
        run_virtual(staged(make_run(scenario_of("osgp"))), std::make_shared<Quiet>()));
    EXPECT_THAT(fake::violations(), Contains(HasSubstr(words))) << static_cast<int>(fault);
  }
}

// The threads of a real run: a stager of each direction beside each peer.
TEST_F(StagedRun, OnThreadsOfItsOwn) {
  with_each({"ar", "osgp", "ad-psgd", "gem"}, [](const std::string& preset) {
    resident::expect_sound_on_threads(scenario_of(preset), staged);
  });
}

// In virtual time they run on the thread of the run.
TEST_F(StagedRun, StagersRunOnTheCpusThatTheyAreGiven) {
  const CpuSet own = thread_cpus().value();
  if (own.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  const CpuSet one = {*own.begin()};
  std::thread([&] {
    RunConfig run = staged(make_run(scenario_of("sgp")));
    for (PeerDevice& device : run.peer_devices) device.stager_cpus = one;
    run_well(std::move(run));
    EXPECT_EQ(thread_cpus().value(), one);
  }).join();
  EXPECT_EQ(thread_cpus().value(), own);
}

// A device that does not answer ends the run with the rank and the reason.
TEST_F(StagedRun, ADeviceThatDoesNotAnswerEndsTheRun) {
  resident::expect_silent_device_ends(staged(make_run(scenario_of("sgp"))),
                                      "the host's memory: no answer");
}

// As a transport does that copies where LibTorch has no memory left.
class Throwing final : public resident::ForwardingTransport {
 public:
  using ForwardingTransport::ForwardingTransport;

  void send(Envelope envelope) override {
    if (envelope.from == 1 && !by_reference(envelope.from, envelope.to))
      throw std::runtime_error("no memory is left");
    ForwardingTransport::send(std::move(envelope));
  }
};

TEST_F(StagedRun, ATransportThatThrowsEndsTheRunWithItsReason) {
  RunConfig run = staged(make_run(scenario_of("sgp")));
  run.transport = std::make_shared<Throwing>(run.transport);
  const RunResult result = run_virtual(std::move(run), std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_THAT(result.error->message,
              HasSubstr("rank 1: a message could not be sent: no memory is left"));
}

}  // namespace staged_run_test
}  // namespace grapevine
