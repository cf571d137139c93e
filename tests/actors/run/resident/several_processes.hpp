// Runs on the fake devices whose ranks are as if in several processes: what they have in common,
// whichever way messages take between processes.
#pragma once
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/run/resident/resident_scenario.hpp"

namespace grapevine::resident {

// Passes all calls on.
class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::shared_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override {
    return inner_->attach(rank, std::move(inbox));
  }
  void detach(Rank rank) override { inner_->detach(rank); }
  TransportCounters counters(Rank rank) const override { return inner_->counters(rank); }
  std::int32_t world_size() const override { return inner_->world_size(); }
  bool by_reference(Rank from, Rank to) const override { return inner_->by_reference(from, to); }
  void send(Envelope envelope) override { inner_->send(std::move(envelope)); }

 private:
  const std::shared_ptr<Transport> inner_;
};

// As if each two ranks were a process; servers are in the first one.
class ByProcess : public ForwardingTransport {
 public:
  ByProcess(std::shared_ptr<Transport> inner, std::int32_t workers)
      : ForwardingTransport(std::move(inner)), workers_(workers) {}

  bool by_reference(Rank from, Rank to) const override {
    return process_of(from) == process_of(to);
  }

 private:
  static constexpr std::int32_t kRanksOfProcess = 2;

  std::int32_t process_of(Rank rank) const { return rank < workers_ ? rank / kRanksOfProcess : 0; }

  const std::int32_t workers_;
};

inline virtual_run_test::Scenario scenario_of(const std::string& preset) {
  virtual_run_test::Scenario scenario;
  scenario.preset = preset;
  scenario.noise = 0.1;
  scenario.dimension = 3000;
  if (preset == "diloco" || preset == "slowmo" || preset == "noloco" ||
      preset == "decoupled-diloco")
    scenario.set = {{"local_steps", "4"}};
  return scenario;
}

inline void expect_same_run(const RunResult& here, const RunResult& host) {
  EXPECT_TRUE(at::equal(here.z.read(), host.z.read()));
  EXPECT_EQ(here.weight_sum, host.weight_sum);
  EXPECT_EQ(here.ledger.committed, host.ledger.committed);
  EXPECT_EQ(here.ledger.sent, here.ledger.received);
  EXPECT_THAT(fake::violations(), testing::IsEmpty());
}

// Calls `check` with each name, which its failures have.
template <class Check>
void with_each(const std::vector<std::string>& names, const Check& check) {
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    check(name);
  }
}

// The runs that `make` makes have the same bits where `placed` puts them on devices and among
// processes as where `spread` puts them among processes alone. Returns the transport of the former.
template <class Between, class Make, class Place>
std::shared_ptr<Between> expect_bits_of_host(const Make& make, const Place& placed,
                                             const Place& spread) {
  const RunResult host = run_well(spread(make()));
  fake::reset();
  RunConfig run = placed(make());
  const auto transport = std::static_pointer_cast<Between>(run.transport);
  const RunResult here = run_well(std::move(run));
  expect_same_run(here, host);
  return transport;
}

// One of its ranks dies and returns.
inline RunConfig make_returning_run(const std::string& preset) {
  RunConfig run = virtual_run_test::make_run(scenario_of(preset));
  run.deaths = {{2, std::chrono::milliseconds(120)}};
  run.returns = {{2, std::chrono::milliseconds(150)}};
  return run;
}

// `placed` puts a run on devices and among processes. A run is cut after `epochs` and continued
// from there: all is accounted for, and no weight is lost or counted twice.
template <class Placed>
void expect_each_message_once(virtual_run_test::Scenario scenario, const std::vector<int>& epochs,
                              const std::string& folder, const Placed& placed) {
  fake::reset();
  scenario.steps_per_epoch = 3;
  scenario.folder = virtual_run_test::fresh_folder(folder);
  run_well(placed(virtual_run_test::make_run(scenario)));
  EXPECT_THAT(fake::violations(), testing::IsEmpty());
  for (const int epoch : epochs) {
    const auto checkpoint = read_checkpoint(fmt::format("{}/epoch-{:04d}", scenario.folder, epoch));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    virtual_run_test::Scenario rest = scenario;
    rest.folder.clear();
    RunConfig run = placed(virtual_run_test::make_run(rest));
    run.resume = *checkpoint;
    const RunResult result = run_well(std::move(run));
    virtual_run_test::expect_all_accounted(result);
    EXPECT_NEAR(result.weight_sum, run_well(virtual_run_test::make_run(rest)).weight_sum, 1e-9);
  }
}

// With the threads of a real run.
template <class Placed>
void expect_sound_on_threads(virtual_run_test::Scenario scenario, const Placed& placed) {
  fake::reset();
  scenario.delay = "";
  const auto observer = std::make_shared<virtual_run_test::Waiting>();
  Runtime runtime(placed(virtual_run_test::make_run(scenario)), observer);
  const RunResult result = observer->wait();
  ASSERT_FALSE(result.error) << result.error->message;
  virtual_run_test::expect_all_accounted(result);
  EXPECT_THAT(fake::violations(), testing::IsEmpty());
}

// The outgoing stager of rank 1 has a device that does not answer: the error has the rank and
// `reason`.
inline void expect_silent_device_ends(RunConfig run, const std::string& reason) {
  auto& outgoing = run.peer_devices[1].outgoing;
  outgoing = std::make_shared<Silent>(outgoing);
  const RunResult result = run_virtual(std::move(run), std::make_shared<virtual_run_test::Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_THAT(result.error->message,
              testing::AllOf(testing::HasSubstr("rank 1"), testing::HasSubstr(reason)));
}

}  // namespace grapevine::resident
