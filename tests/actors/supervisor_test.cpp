// The Supervisor by itself: everybody else is the test.
#include "actors/supervisor.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <future>

namespace grapevine {
namespace {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

class Ending : public RunObserver {
 public:
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string& message) override { warnings_ += message + "\n"; }
  void on_end(RunResult result) override { end_.set_value(std::move(result)); }
  std::future<RunResult> end() { return end_.get_future(); }
  const std::string& warnings() const { return warnings_; }  // once the run has ended

 private:
  std::promise<RunResult> end_;
  std::string warnings_;
};

// A supervisor of one rank; that rank, the writer of checkpoints and the tracer are this test.
class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() {
    SupervisorConfig config;
    config.observer = observer_;
    config.checkpoints = true;
    config.checkpoint_every_epochs = 1;
    config.total_epochs = 9;
    supervisor_ = system_.spawn(grapevine::supervisor, config);
    BeginRun crew;
    crew.peers = {played<PeerActor>()};
    crew.writer = played<CheckpointWriterActor>();
    crew.tracer = played<TracerActor>();
    self_->send(supervisor_, crew);
    expect<StartTraining>();
  }

  template <class Handle>
  Handle played() {
    return caf::actor_cast<Handle>(caf::actor_cast<caf::strong_actor_ptr>(self_.ptr()));
  }

  // The next message.
  template <class Message>
  Message expect() {
    Message received{};
    self_->receive([&](const Message& message) { received = message; },
                   caf::after(kDeadline) >> [] { FAIL() << "nothing came"; });
    return received;
  }

  void finish_epoch(double epochs) {
    StepReport report;
    report.epochs_done = epochs;
    self_->send(supervisor_, report);
  }
  // A stop is asked for while a checkpoint is written; that one's id.
  std::int64_t stop_during_a_write() {
    finish_epoch(1);
    give_snapshot(expect<TakeSnapshot>().id);
    const std::int64_t id = expect<WriteCheckpoint>().id;
    self_->send(supervisor_, StopRequested{});
    expect<Collect>();
    return id;
  }

  RunResult result() {
    std::future<RunResult> end = observer_->end();
    if (end.wait_for(kDeadline) == std::future_status::ready) return end.get();
    ADD_FAILURE() << "the run does not end";
    return {};
  }

  void give_snapshot(std::int64_t id) { self_->send(supervisor_, RankSnapshot{id, 0, 1, {}}); }

  caf::actor_system_config system_config_;
  caf::actor_system system_{system_config_};
  caf::scoped_actor self_{system_};
  std::shared_ptr<Ending> observer_ = std::make_shared<Ending>();
  SupervisorActor supervisor_;
};

// The state after a failure is not what the next run is to go on from: not even where a stop was
// asked for while the last good one was being written.
TEST_F(SupervisorTest, TakesNoCheckpointOnceTheRunHasFailed) {
  const std::int64_t written = stop_during_a_write();
  self_->send(supervisor_, RankFailed{{Errc::failed, "rank 0: the loss is not finite"}});
  expect<CloseTrace>();
  self_->send(supervisor_, CheckpointWritten{written, "good", ""});
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "rank 0: the loss is not finite");
  EXPECT_EQ(result.checkpoint, "good");
  self_->receive([](TakeSnapshot) { ADD_FAILURE() << "a cut after the failure"; },
                 caf::after(std::chrono::seconds(0)) >> [] {});
}

// Without the failure the stop gets its checkpoint as soon as the one before it is written.
TEST_F(SupervisorTest, AStopThatComesDuringAWriteGetsItsOwnCheckpoint) {
  const std::int64_t written = stop_during_a_write();
  self_->send(supervisor_, CheckpointWritten{written, "good", ""});
  const auto last = expect<TakeSnapshot>();
  EXPECT_GT(last.id, written);
  give_snapshot(last.id);
  self_->send(supervisor_, CheckpointWritten{expect<WriteCheckpoint>().id, "last", ""});
  RankReport report;
  report.z = FrozenTensor::copy_of(at::zeros({1}));
  self_->send(supervisor_, report);
  expect<CloseTrace>();
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.checkpoint, "last");
}

// Too large for a message, say: the run goes on, and takes no further checkpoints.
TEST_F(SupervisorTest, AStateThatCannotBeSentCostsTheCheckpointsAlone) {
  finish_epoch(1);
  const std::int64_t id = expect<TakeSnapshot>().id;
  self_->send(supervisor_, SnapshotRefused{id - 1, 0, "of another cut"});
  self_->send(supervisor_, SnapshotRefused{id, 7, "of nobody"});
  self_->send(supervisor_, SnapshotRefused{id, 0, "rank 0: its state is too large"});
  finish_epoch(2);
  self_->send(supervisor_, StopRequested{});
  expect<Collect>();
  RankReport report;
  report.z = FrozenTensor::copy_of(at::zeros({1}));
  self_->send(supervisor_, report);
  expect<CloseTrace>();
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.checkpoint, "");
  EXPECT_EQ(observer_->warnings(), "no further checkpoints: rank 0: its state is too large\n");
  self_->receive([](TakeSnapshot) { ADD_FAILURE() << "a cut after the refusal"; },
                 caf::after(std::chrono::seconds(0)) >> [] {});
}

}  // namespace
}  // namespace grapevine
