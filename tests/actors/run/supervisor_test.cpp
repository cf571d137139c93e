// The Supervisor by itself: everybody else is the test.
#include "actors/run/supervisor.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "tests/actors/virtual_actors.hpp"

namespace grapevine {
namespace supervisor_test {

class Ending : public RunObserver {
 public:
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string& message) override { warnings_ += message + "\n"; }
  void on_end(RunResult result) override { end_ = std::move(result); }
  const std::optional<RunResult>& end() const { return end_; }
  const std::string& warnings() const { return warnings_; }

 private:
  std::optional<RunResult> end_;
  std::string warnings_;
};

// A supervisor in virtual time; its ranks, the writer of checkpoints and the tracer are this test.
class SupervisorTest : public VirtualActors {
 protected:
  using Change = std::function<void(SupervisorConfig&, BeginRun&)>;
  explicit SupervisorTest(std::int32_t ranks = 1, Duration timeout = std::chrono::seconds(60),
                          const Change& change = nullptr) {
    SupervisorConfig config;
    config.ranks = ranks;
    config.observer = observer_;
    config.checkpoints = true;
    config.checkpoint_every_epochs = 1;
    config.total_epochs = 9;
    config.timeout = timeout;
    BeginRun crew;
    crew.peers.assign(static_cast<std::size_t>(ranks), played<PeerActor>());
    crew.writer = played<CheckpointWriterActor>();
    crew.tracer = played<TracerActor>();
    if (change) change(config, crew);
    supervisor_ = system_.spawn(grapevine::supervisor, config);
    self_->send(supervisor_, crew);
    for (Rank rank = 0; rank < ranks; ++rank) expect<StartTraining>();
  }

  ~SupervisorTest() override { kill(supervisor_); }

  // The next message.
  template <class Message>
  Message expect() {
    settle();
    Message received{};
    self_->receive([&](const Message& message) { received = message; },
                   caf::after(std::chrono::seconds(0)) >> [] { ADD_FAILURE() << "nothing came"; });
    return received;
  }

  template <class Message>
  void expect_no() {
    settle();
    self_->receive([](const Message&) { ADD_FAILURE() << "it came"; },
                   caf::after(std::chrono::seconds(0)) >> [] {});
  }

  // A step every second.
  void train(int seconds, double epochs) {
    for (int i = 0; i < seconds; ++i) {
      finish_epoch(epochs);
      settle();
      scheduler_.advance_time(std::chrono::seconds(1));
    }
  }

  void give_report() {
    RankReport report;
    report.z = FrozenTensor::copy_of(at::zeros({1}));
    self_->send(supervisor_, report);
  }

  void finish_epoch(double epochs, Rank rank = 0) {
    StepReport report;
    report.rank = rank;
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
    settle();
    if (observer_->end()) return *observer_->end();
    ADD_FAILURE() << "the run does not end";
    return {};
  }

  // The line that the run ends with.
  std::string failure_after(int seconds) {
    pass(seconds);
    expect<CloseTrace>();
    self_->send(supervisor_, TraceClosed{});
    const RunResult result = this->result();
    return result.error ? result.error->message : "no failure";
  }

  // What the operator of the run reads.
  ControlReply ask(ControlRequest::Kind kind) {
    ControlRequest request;
    request.kind = kind;
    auto answer = self_->request(supervisor_, caf::infinite, request);
    settle();
    ControlReply reply;
    answer.receive([&](const ControlReply& read) { reply = read; },
                   [](const caf::error&) { ADD_FAILURE() << "no answer"; });
    return reply;
  }
  void expect_answer(ControlRequest::Kind kind, bool refused, const std::string& text) {
    const ControlReply reply = ask(kind);
    EXPECT_EQ(reply.text, text);
    EXPECT_EQ(reply.refused, refused) << text;
  }

  void give_snapshot(std::int64_t id, Rank rank = 0) {
    self_->send(supervisor_, RankSnapshot{id, rank, 1, {}});
  }

  std::shared_ptr<Ending> observer_ = std::make_shared<Ending>();
  SupervisorActor supervisor_;
};

// The state after a failure is not what the next run is to go on from: not even where a stop was
// asked for while the last good one was being written.
TEST_F(SupervisorTest, TakesNoCheckpointOnceTheRunHasFailed) {
  const std::int64_t written = stop_during_a_write();
  self_->send(supervisor_, RankFailed{{Errc::failed, "rank 0: the loss is not finite"}});
  pass(1);  // for the last records
  expect<CloseTrace>();
  self_->send(supervisor_, CheckpointWritten{written, "good", ""});
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "rank 0: the loss is not finite");
  EXPECT_EQ(result.checkpoint, "good");
  expect_no<TakeSnapshot>();
}

// Without the failure the stop gets its checkpoint as soon as the one before it is written.
TEST_F(SupervisorTest, AStopThatComesDuringAWriteGetsItsOwnCheckpoint) {
  const std::int64_t written = stop_during_a_write();
  self_->send(supervisor_, CheckpointWritten{written, "good", ""});
  const auto last = expect<TakeSnapshot>();
  EXPECT_GT(last.id, written);
  give_snapshot(last.id);
  self_->send(supervisor_, CheckpointWritten{expect<WriteCheckpoint>().id, "last", ""});
  give_report();
  expect<CloseTrace>();
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.checkpoint, "last");
}

// A full disk, say: the run goes on, and the next checkpoint is tried again.
TEST_F(SupervisorTest, AStateThatCannotBeStoredCostsItsCheckpointAlone) {
  finish_epoch(1);
  const std::int64_t id = expect<TakeSnapshot>().id;
  self_->send(supervisor_, SnapshotRefused{id - 1, 0, "of another cut"});
  self_->send(supervisor_, SnapshotRefused{id, 7, "of nobody"});
  self_->send(supervisor_, SnapshotRefused{id, 0, "rank 0: no space is left"});
  finish_epoch(2);
  const std::int64_t next = expect<TakeSnapshot>().id;
  EXPECT_GT(next, id);
  give_snapshot(next);
  self_->send(supervisor_, CheckpointWritten{expect<WriteCheckpoint>().id, "second", ""});
  self_->send(supervisor_, StopRequested{});
  expect<Collect>();
  give_report();
  self_->send(supervisor_, SnapshotRefused{expect<TakeSnapshot>().id, 0, "rank 0: once more"});
  expect<CloseTrace>();
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.checkpoint, "second");
  EXPECT_TRUE(result.lacks_final);
  EXPECT_EQ(observer_->warnings(),
            "this checkpoint is not written: rank 0: no space is left\n"
            "this checkpoint is not written: rank 0: once more\n");
  expect_no<TakeSnapshot>();
}

// A snapshot that is lost on its way costs its checkpoint, not all that would follow.
TEST_F(SupervisorTest, ACutThatNobodyAnswersIsGivenUp) {
  train(1, 1);
  const std::int64_t lost = expect<TakeSnapshot>().id;
  train(70, 2);
  EXPECT_EQ(observer_->warnings(),
            "a checkpoint is given up: no state came from rank 0 for 60 s\n");
  const std::int64_t next = expect<TakeSnapshot>().id;
  EXPECT_GT(next, lost);
  give_snapshot(lost);  // too late
  expect_no<WriteCheckpoint>();
  give_snapshot(next);
  EXPECT_EQ(expect<WriteCheckpoint>().id, next);
}

class TwoRanks : public SupervisorTest {
 protected:
  TwoRanks() : SupervisorTest(2) {}
};

class ShortTimeout : public SupervisorTest {
 protected:
  ShortTimeout() : SupervisorTest(1, std::chrono::seconds(1)) {}
};

// Shorter than the usual interval of the watchdog.
TEST_F(ShortTimeout, IsKept) {
  EXPECT_NE(failure_after(3).find("no rank made progress for 1 s; none has finished a step"),
            std::string::npos);
}

// Large states over a slow link come one after the other.
TEST_F(TwoRanks, ACutThatGetsOnIsNotGivenUp) {
  finish_epoch(1, 1);
  finish_epoch(1, 0);
  const std::int64_t id = expect<TakeSnapshot>().id;
  expect<TakeSnapshot>();
  train(40, 1);
  give_snapshot(id, 1);
  train(40, 1);
  EXPECT_EQ(observer_->warnings(), "");
  give_snapshot(id, 0);
  EXPECT_EQ(expect<WriteCheckpoint>().id, id);
}

TEST_F(TwoRanks, OnlyTheMissingOneIsNamed) {
  finish_epoch(1, 1);
  finish_epoch(1, 0);
  give_snapshot(expect<TakeSnapshot>().id, 0);
  train(70, 1);
  EXPECT_EQ(observer_->warnings(),
            "a checkpoint is given up: no state came from rank 1 for 60 s\n");
}

// Training is done by then, and its model here.
TEST_F(SupervisorTest, TheLastCutMayBeGivenUpToo) {
  self_->send(supervisor_, StopRequested{});
  expect<Collect>();
  give_report();
  expect<TakeSnapshot>();
  EXPECT_FALSE(observer_->end());
  pass(70);
  expect<CloseTrace>();
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.checkpoint, "");
  EXPECT_NE(observer_->warnings().find("no state came from rank 0"), std::string::npos)
      << observer_->warnings();
}

// It has the whole timeout, however long ago the newest step was.
TEST_F(SupervisorTest, AStopAfterAPauseLeavesItsCheckpointTime) {
  finish_epoch(0.5);
  pass(30);
  self_->send(supervisor_, StopRequested{});
  expect<Collect>();
  give_report();
  const std::int64_t id = expect<TakeSnapshot>().id;
  pass(50);
  give_snapshot(id);
  EXPECT_EQ(expect<WriteCheckpoint>().id, id);
  pass(50);
  self_->send(supervisor_, CheckpointWritten{id, "last", ""});
  expect<CloseTrace>();
  self_->send(supervisor_, TraceClosed{});
  const RunResult result = this->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.checkpoint, "last");
}

// The stop's own checkpoint takes the place of the one that is given up.
TEST_F(SupervisorTest, AStopDuringACutThatNobodyAnswersTriesOnceMore) {
  finish_epoch(1);
  const std::int64_t lost = expect<TakeSnapshot>().id;
  self_->send(supervisor_, StopRequested{});
  expect<Collect>();
  give_report();
  pass(70);
  const std::int64_t last = expect<TakeSnapshot>().id;
  EXPECT_GT(last, lost);
  give_snapshot(last);
  EXPECT_EQ(expect<WriteCheckpoint>().name, "step-00000001");
  EXPECT_FALSE(observer_->end());
}

TEST_F(SupervisorTest, SaysWhoseLastStateIsMissing) {
  finish_epoch(0.5);
  self_->send(supervisor_, RankFinished{});
  expect<Collect>();
  EXPECT_NE(failure_after(70).find("the last state is missing of rank 0; last steps"),
            std::string::npos);
}

TEST_F(SupervisorTest, SaysWhoseStateACheckpointWaitsFor) {
  finish_epoch(0.5);
  pass(10);
  self_->send(supervisor_, CheckpointRequested{});
  expect<TakeSnapshot>();
  const std::string failure = failure_after(58);
  for (const char* part : {"the state for a checkpoint is missing of rank 0; ", "; last steps"})
    EXPECT_NE(failure.find(part), std::string::npos) << failure;
}

// ---- what the operator asks for

constexpr char kEnding[] = "the run is ending";
constexpr char kStopping[] = "the run is stopping already";

TEST_F(SupervisorTest, AStopIsAnsweredOnceAndThenNothingElseIsTaken) {
  finish_epoch(0.5);
  expect_answer(ControlRequest::Kind::stop, false, "the run writes a checkpoint and stops");
  const std::int64_t id = expect<TakeSnapshot>().id;
  expect_answer(ControlRequest::Kind::stop, false, kStopping);
  for (const auto kind :
       {ControlRequest::Kind::checkpoint, ControlRequest::Kind::drain, ControlRequest::Kind::set})
    expect_answer(kind, true, kEnding);
  give_snapshot(id);
  self_->send(supervisor_, CheckpointWritten{id, "last", ""});
  give_report();
  settle();
  expect_answer(ControlRequest::Kind::stop, false, kStopping);
  self_->send(supervisor_, TraceClosed{});
  EXPECT_TRUE(result().interrupted);
}

TEST_F(SupervisorTest, AStopAfterTheLastStepIsRefused) {
  self_->send(supervisor_, RankFinished{0});
  settle();
  expect_answer(ControlRequest::Kind::stop, true, "the run has taken its last step and is ending");
  expect_answer(ControlRequest::Kind::checkpoint, true, kEnding);
  self_->send(supervisor_, RankFailed{{Errc::failed, "late"}});
  settle();
  expect_answer(ControlRequest::Kind::stop, true, "the run has taken its last step and is ending");
  self_->send(supervisor_, TraceClosed{});
  EXPECT_FALSE(result().interrupted);
}

class WithValidations : public SupervisorTest {
 protected:
  WithValidations()
      : SupervisorTest(1, std::chrono::seconds(60), [this](SupervisorConfig&, BeginRun& crew) {
          crew.evaluator = played<EvaluatorActor>();
        }) {}
};

// A stop then ends the wait for validations.
TEST_F(WithValidations, AStopAfterTheLastStepEndsThem) {
  self_->send(supervisor_, RankFinished{0});
  settle();
  expect_answer(ControlRequest::Kind::stop, false,
                "the run ends without the validations that are due");
  expect_answer(ControlRequest::Kind::stop, true, "the run has taken its last step and is ending");
}

class WhileMembersChange : public SupervisorTest {
 protected:
  WhileMembersChange()
      : SupervisorTest(1, std::chrono::seconds(60), [](SupervisorConfig& config, BeginRun&) {
          config.changes_members = config.tolerates_worker_loss = true;
          config.continuing.members = {7};  // others: the run begins with a change
        }) {}
};

TEST_F(WhileMembersChange, AStopWaitsAndIsTakenOnce) {
  expect<HoldForView>();
  expect_answer(ControlRequest::Kind::stop, false, "the run writes a checkpoint and stops");
  expect_answer(ControlRequest::Kind::stop, false, kStopping);
  expect_no<TakeSnapshot>();
}

class SupervisorBeforeTheRun : public VirtualActors {};

TEST_F(SupervisorBeforeTheRun, AStopIsTakenOnceAndNothingElseIs) {
  SupervisorConfig config;
  config.observer = std::make_shared<Ending>();
  const auto supervisor = system_.spawn(grapevine::supervisor, config);
  const auto expect_answer = [&](ControlRequest::Kind kind, bool refused, const std::string& text) {
    ControlRequest request;
    request.kind = kind;
    auto answer = self_->request(supervisor, caf::infinite, request);
    settle();
    answer.receive(
        [&](const ControlReply& reply) {
          EXPECT_EQ(reply.text, text);
          EXPECT_EQ(reply.refused, refused) << text;
        },
        [](const caf::error&) { ADD_FAILURE() << "no answer"; });
  };
  expect_answer(ControlRequest::Kind::checkpoint, true,
                "the run has not begun: not all processes have joined");
  expect_answer(ControlRequest::Kind::stop, false, "the run stops before it begins");
  expect_answer(ControlRequest::Kind::stop, false, kStopping);
  kill(supervisor);
}

// Nobody else says what there is to resume.
TEST_F(SupervisorTest, ACheckpointThatCannotBeWrittenNamesTheOneBefore) {
  finish_epoch(1);
  give_snapshot(expect<TakeSnapshot>().id);
  self_->send(supervisor_,
              CheckpointWritten{expect<WriteCheckpoint>().id, "/runs/a/checkpoint/first", ""});
  finish_epoch(2);
  give_snapshot(expect<TakeSnapshot>().id);
  self_->send(supervisor_, CheckpointWritten{expect<WriteCheckpoint>().id, "", "no space left"});
  EXPECT_EQ(failure_after(1), "checkpoint: no space left; resume with --resume /runs/a");
}

TEST_F(SupervisorTest, AFirstCheckpointThatCannotBeWrittenSaysThatThereIsNone) {
  finish_epoch(1);
  give_snapshot(expect<TakeSnapshot>().id);
  self_->send(supervisor_, CheckpointWritten{expect<WriteCheckpoint>().id, "", "no space left"});
  EXPECT_EQ(failure_after(1), "checkpoint: no space left; no checkpoint was written");
}

// As it is counted where it takes place.
TEST_F(WithValidations, TheFirstThatIsLeftOutIsTheFirst) {
  self_->send(supervisor_, EpochEvaluated{0, {}, "left out"});
  settle();
  EXPECT_EQ(observer_->warnings(), "validation of epoch 1: left out\n");
}

// Process 0 with rank 0, and another one.
class TwoProcesses : public SupervisorTest {
 protected:
  TwoProcesses()
      : SupervisorTest(2, std::chrono::seconds(60),
                       [this](SupervisorConfig& config, BeginRun& crew) {
                         config.tolerates_worker_loss = true;
                         const caf::actor other =
                             system_.spawn([this](caf::event_based_actor* self) -> caf::behavior {
                               self->set_default_handler(caf::drop);
                               return {[this](const RunEnded& told) { told_ = told; }};
                             });
                         crew.agents = {caf::actor_cast<ProcessAgentActor>(other)};
                       }) {}

  RunEnded told_;  // of the other process
};

TEST_F(TwoProcesses, WithoutARankOfProcess0TheRunEnds) {
  self_->send(caf::actor_cast<caf::actor>(supervisor_),
              caf::down_msg{self_->address(), caf::exit_reason::kill});
  settle();
  EXPECT_TRUE(told_.failed);
  EXPECT_EQ(told_.error.code, Errc::peer_down);
  EXPECT_NE(told_.error.message.find("it was the last rank of process 0"), std::string::npos)
      << told_.error.message;
}

class TwoRanksWithASchedule : public SupervisorTest {
 protected:
  TwoRanksWithASchedule()
      : SupervisorTest(2, std::chrono::seconds(60), [](SupervisorConfig& config, BeginRun&) {
          config.schedule = {{1, {{"lr", "0.1"}}}, {2.5, {{"lr", "0.2"}}}};
        }) {}
};

TEST_F(TwoRanksWithASchedule, APlannedChangeThatComesTooLateIsNamed) {
  self_->send(supervisor_, RankFinished{0});
  finish_epoch(9, 0);
  finish_epoch(1, 1);
  settle();
  EXPECT_EQ(observer_->warnings(), "") << "the other rank may be lost, and its place taken";
  self_->send(supervisor_, RankFinished{1});
  settle();
  const std::string why = " is left out: it had not taken place when a rank took its last step\n";
  EXPECT_EQ(observer_->warnings(),
            "--schedule: lr = 0.1 of epoch 1" + why + "--schedule: lr = 0.2 of epoch 2.5" + why);
}

}  // namespace supervisor_test
}  // namespace grapevine
