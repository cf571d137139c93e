// Whole runs in virtual time whose ranks wait longer than usual, and healthy ones.
#include <gtest/gtest.h>

#include "algorithms/wiring/wiring.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace waits_run_test {

using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr Duration kSecond = std::chrono::seconds(1);

// Loses the messages of one rank to another from a step on, and reports nothing.
class Losing final : public Transport {
 public:
  Losing(std::shared_ptr<Transport> inner, Rank from, Rank to, Step step)
      : inner_(std::move(inner)), from_(from), to_(to), step_(step) {}

  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override {
    return inner_->attach(rank, std::move(inbox));
  }
  void detach(Rank rank) override { inner_->detach(rank); }
  TransportCounters counters(Rank rank) const override { return inner_->counters(rank); }
  std::int32_t world_size() const override { return inner_->world_size(); }
  void send(Envelope envelope) override {
    if (envelope.from == from_ && envelope.to == to_ && envelope.stamp.step >= step_) return;
    inner_->send(std::move(envelope));
  }

 private:
  std::shared_ptr<Transport> inner_;
  Rank from_, to_;
  Step step_;
};

std::vector<std::string> lines_with(const std::vector<std::string>& lines,
                                    const std::string& part) {
  std::vector<std::string> found;
  for (const std::string& line : lines)
    if (line.find(part) != std::string::npos) found.push_back(line);
  return found;
}

// In a ring without one message all ranks wait for each other.
TEST(WaitsRun, ALostMessageIsReportedAndEndsTheRunWhereItIsToEnd) {
  for (const bool aborts : {false, true}) {
    Scenario scenario;
    scenario.preset = "ar";
    scenario.set = {{"all_reduce", "ring"}};
    scenario.delay = "lognormal=0:0";  // a second for each step
    RunConfig config = make_run(scenario);
    config.transport = std::make_shared<Losing>(config.transport, 1, 2, 12);
    config.timeout = std::chrono::seconds(2000);
    if (aborts) config.stall_abort = 40 * kSecond;
    const auto observer = std::make_shared<Quiet>();
    const RunResult result = run_virtual(std::move(config), observer);
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code, Errc::timeout);
    const auto lines = lines_with(observer->warnings, "these ranks wait for each other");
    EXPECT_NE(lines.front().find("of operation 12 from rank "), std::string::npos) << lines.front();
    if (aborts) {
      EXPECT_LE(lines.size(), 2U);  // at about 16 s and twice that
      for (const char* part : {"these ranks wait for each other; --stall-abort 40 ends the run",
                               "; no checkpoint was written"})
        EXPECT_NE(result.error->message.find(part), std::string::npos) << result.error->message;
      EXPECT_LT(result.seconds, 60);
    } else {
      EXPECT_EQ(result.error->message.find("no rank made progress for 2000 s"), 0U);
      EXPECT_NE(result.error->message.find("these ranks wait for each other"), std::string::npos)
          << result.error->message;
      EXPECT_GE(lines.size(), 6U);  // of 2000 s: 16 s, 32 s, 64 s, ...
      EXPECT_LE(lines.size(), 8U);
    }
  }
}

// The answer of a server is lost: it has nothing to do, and its client waits.
TEST(WaitsRun, ALostAnswerOfAServerIsALostLink) {
  Scenario scenario;
  scenario.preset = "downpour";
  scenario.delay = "lognormal=0:0";
  RunConfig config = make_run(scenario);
  const Rank server = config.workers();
  config.transport = std::make_shared<Losing>(config.transport, server, 1, 5);
  config.stall_abort = 20 * kSecond;
  const RunResult result = run_virtual(std::move(config), std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::peer_down);
  for (const std::string& part :
       {std::string("rank 1 has waited "),
        "rank " + std::to_string(server) + " neither waits nor computes: the message is lost"})
    EXPECT_NE(result.error->message.find(part), std::string::npos) << result.error->message;
}

// Delays are injected, so whatever they are, nothing is wrong.
TEST(WaitsRun, NothingIsReportedOfRunsWithDelays) {
  for (const Preset& preset : presets())
    for (const char* delay : {"lognormal=3:1", "rank=1:40s", "stall=compute:1@7:500s"}) {
      SCOPED_TRACE(preset.name + " with " + delay);
      Scenario scenario;
      scenario.preset = preset.name;
      scenario.delay = delay;
      RunConfig config = make_run(scenario);
      config.timeout = std::chrono::seconds(5000);
      config.stall_abort = kSecond;
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_virtual(std::move(config), observer);
      EXPECT_FALSE(result.error) << result.error->message;
      EXPECT_EQ(lines_with(observer->warnings, "rank "), std::vector<std::string>());
    }
}

// Steps of ten minutes, and the default timeout of five: the first step has an hour, and shows
// what is usual.
TEST(WaitsRun, ASlowRunNeedsNoTimeout) {
  for (const bool has_hour : {true, false}) {
    Scenario scenario;
    scenario.delay = "lognormal=6.4:0";
    RunConfig config = make_run(scenario);
    if (has_hour) config.first_timeout = std::chrono::hours(1);
    const auto observer = std::make_shared<Quiet>();
    const RunResult result = run_virtual(std::move(config), observer);
    EXPECT_EQ(result.error.has_value(), !has_hour);
    if (!has_hour) {
      EXPECT_EQ(result.error->message.find("no rank made progress for 300 s"), 0U);
    } else {
      EXPECT_EQ(observer->warnings, std::vector<std::string>());
      EXPECT_GT(result.seconds, 600 * 20);
    }
  }
}

}  // namespace waits_run_test
}  // namespace grapevine
