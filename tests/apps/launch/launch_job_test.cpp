// LaunchJob by itself, where `launch` has no option for what is tested.
#include "apps/launch/launch_job.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "apps/console/signals.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace launch_job_test {

// Processes of this machine that run a shell script, with their rank in RANK.
std::vector<LaunchedCommand> scripts(std::int32_t count, const std::string& body,
                                     const std::string& folder) {
  std::vector<LaunchedCommand> commands;
  for (std::int32_t rank = 0; rank < count; ++rank) {
    LaunchedCommand command;
    command.placement.rank = rank;
    command.placement.host = "here";
    command.placement.here = true;
    command.command.arguments = {"/bin/sh", "-c", body};
    command.command.environment = {"RANK=" + std::to_string(rank), "FOLDER=" + folder};
    commands.push_back(std::move(command));
  }
  return commands;
}

// A process that does not end after a loss is killed soon, but process 0 may finish its files.
TEST(LaunchJob, AfterALossProcessZeroHasTheWholeGrace) {
  const TemporaryDirectory folder;
  const std::string body =
      "cd \"$FOLDER\"\n"
      "case $RANK in\n"
      "0) trap 'while kill -0 $(cat pid2) 2>/dev/null; do sleep 0.05; done; echo saved; exit 3' "
      "TERM;;\n"
      "1) until [ -s pid0 ] && [ -s pid2 ]; do sleep 0.05; done; kill -KILL $$;;\n"
      "2) trap '' TERM;;\n"
      "esac\n"
      "echo $$ > part$RANK; mv part$RANK pid$RANK; while :; do sleep 0.05; done";
  LaunchJobOptions options;
  options.lost_grace = std::chrono::milliseconds(0);
  std::ostringstream out, err;
  Console console{out, err};
  SignalPipe signals;
  LaunchJob job(options, signals, console);
  ASSERT_TRUE(job.start(scripts(3, body, folder.path().string())));
  const auto done = job.wait();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::peer_down);
  EXPECT_EQ(done.error().message, "process 1 on here was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(out.str(), "[0] saved\n");
  EXPECT_NE(err.str().find("process 2 on here has not ended: killing it"), std::string::npos)
      << err.str();
  EXPECT_EQ(err.str().find("process 0"), std::string::npos) << err.str();
}

// Rank 0 presses Ctrl-C twice, rank 1 ignores it.
TEST(LaunchJob, ASecondInterruptKillsAllAndSaysSo) {
  const TemporaryDirectory folder;
  const std::string body =
      "cd \"$FOLDER\"\n"
      "case $RANK in\n"
      "0) trap 'trap \"\" INT; kill -INT $PPID' INT\n"
      "   until [ -s pid1 ]; do sleep 0.05; done; kill -INT $PPID;;\n"
      "1) trap '' INT; echo $$ > part; mv part pid1;;\n"
      "esac\n"
      "while :; do sleep 0.05; done";
  std::ostringstream out, err;
  Console console{out, err};
  SignalPipe signals;
  LaunchJob job({}, signals, console);
  ASSERT_TRUE(job.start(scripts(2, body, folder.path().string())));
  const auto done = job.wait();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::failed);
  EXPECT_EQ(done.error().message, kEndedAtOnce);
  EXPECT_EQ(job.exit_code(), 128 + SIGINT);
  EXPECT_EQ(err.str(), "") << "that line is all";
}

// The others have reported it lost, and ended without it.
TEST(LaunchJob, AFrozenProcessDoesNotKeepAJobThatHasEnded) {
  const TemporaryDirectory folder;
  LaunchJobOptions options;
  options.after_head = std::chrono::milliseconds(1);
  std::ostringstream out, err;
  Console console{out, err};
  SignalPipe signals;
  LaunchJob job(options, signals, console);
  ASSERT_TRUE(job.start(scripts(3, "[ $RANK != 1 ] || kill -STOP $$", folder.path().string())));
  const auto done = job.wait();
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_NE(err.str().find("process 1 on here has not ended: killing it"), std::string::npos)
      << err.str();
}

// The others may have ended long before the one that is waited for.
TEST(LaunchJob, SaysWhomItWaitsForAndWhy) {
  const TemporaryDirectory folder;
  const std::string body =
      "cd \"$FOLDER\"\n"
      "case $RANK in\n"
      "0) trap 'until grep -q waiting err; do sleep 0.05; done; exit 3' TERM;;\n"
      "1) until [ -s pid0 ]; do sleep 0.05; done\n"
      "   echo 'error: rank 0 is silent; resume with --resume out' >&2; exit 3;;\n"
      "esac\n"
      "echo $$ > pid0; while :; do sleep 0.05; done";
  LaunchJobOptions options;
  options.notice = std::chrono::milliseconds(0);
  std::ostringstream out;
  std::ofstream err(folder.path() / "err");
  err << std::unitbuf;
  Console console{out, err};
  SignalPipe signals;
  LaunchJob job(options, signals, console);
  ASSERT_TRUE(job.start(scripts(2, body, folder.path().string())));
  const auto done = job.wait();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "rank 0 is silent; resume with --resume out");
  EXPECT_EQ(read_file(folder.path() / "err"),
            "launch: rank 0 is silent: waiting up to 60 s for process 0 on here to end\n");
}

// A job whose processes continue without those that are lost. `err` in its folder is its stderr.
class ContinuedJob : public testing::Test {
 protected:
  // Ranks 0, 1, …: one script each.
  Expected<void> run(const std::vector<std::string>& bodies, int restarts,
                     bool reports_begin = false) {
    std::string body = "cd \"$FOLDER\"\ncase $RANK in\n";
    for (std::size_t rank = 0; rank < bodies.size(); ++rank)
      body += std::to_string(rank) + ") " + bodies[rank] + ";;\n";
    LaunchJobOptions options;
    options.survivors_continue = true;
    options.restarts = restarts;
    options.reports_begin = reports_begin;
    std::ofstream err(folder_.path() / "err");
    err << std::unitbuf;
    Console console{out_, err};
    SignalPipe signals;
    LaunchJob job(options, signals, console);
    const auto count = static_cast<std::int32_t>(bodies.size());
    if (auto started = job.start(scripts(count, body + "esac", folder_.path().string())); !started)
      return started;
    return job.wait();
  }
  std::string err() const { return read_file(folder_.path() / "err"); }
  bool says(const std::string& text) const { return err().find(text) != std::string::npos; }
  static std::string once_it_says(const std::string& text) {
    return "until grep -q '" + text + "' err; do sleep 0.05; done; ";
  }

  const TemporaryDirectory folder_;
  std::ostringstream out_;
};

constexpr char kDies[] = "exec sh -c 'kill -KILL $$'";
constexpr char kDiesOnce[] = "[ -e died ] || { touch died; exec sh -c 'kill -KILL $$'; }; ";

// It joins a run that goes on without it.
TEST_F(ContinuedJob, ARestartThatFindsItsInputBadEndsNoOtherProcess) {
  const auto done = run({once_it_says("code 2") + "sleep 0.3; echo done",
                         kDiesOnce + std::string("echo 'error: no such file' >&2; exit 2")},
                        2);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(out_.str(), "[0] done\n");
  EXPECT_TRUE(says("[1] error: no such file\n")) << err();
  EXPECT_TRUE(says("process 1 on here exited with code 2: the others continue\n")) << err();
}

// Its process 0 would wait for it.
TEST_F(ContinuedJob, AFailureBeforeTheRunHasBegunEndsTheJob) {
  const auto done = run({"trap 'exit 1' TERM; touch waits; while :; do sleep 0.05; done",
                         "until [ -e waits ]; do sleep 0.05; done; exit 7"},
                        2, true);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Errc::failed);
  EXPECT_EQ(done.error().message, "process 1 on here exited with code 7");
}

TEST_F(ContinuedJob, OnceTheRunHasBegunTheOthersContinue) {
  const std::string begins = "echo '" + text_of(RunBegin{2, 2, 1}) + "' >&2; touch begun; ";
  const auto done = run({begins + once_it_says("code 7") + "echo done",
                         "until [ -e begun ]; do sleep 0.05; done; exit 7"},
                        0, true);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(out_.str(), "[0] done\n");
  EXPECT_FALSE(says("have joined")) << err();
}

// The others end by themselves, once they notice it.
TEST_F(ContinuedJob, ARunDoesNotOutliveItsProcessZero) {
  const auto done = run({"exit 1", once_it_says("exited with code 1: ") + "exit 3",
                         once_it_says("exited with code 3: the run ends") + "exit 3"},
                        3);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().message, "process 0 on here exited with code 1");
  EXPECT_TRUE(says("process 0 on here exited with code 1: the run ends\n")) << err();
  EXPECT_FALSE(says("the others continue")) << err();
}

// An old loss is not why the run has ended.
TEST_F(ContinuedJob, TheEndOfProcessZeroCountsMoreThanALossThatTheRunSurvived) {
  const std::string later = once_it_says("process 2 on here was killed.*: the others continue");
  struct Case {
    std::string end;
    Errc code;
    std::string message;
  };
  for (const auto& [end, code, message] : std::vector<Case>{
           {"echo 'error: loss' >&2; exit 1", Errc::failed, "process 0 on here exited with code 1"},
           {kDies, Errc::peer_down, "process 0 on here was killed by signal 9 (SIGKILL)"},
           {"echo 'error: too few; resume with --resume out' >&2; exit 3", Errc::peer_down,
            "too few; resume with --resume out"}}) {
    SCOPED_TRACE(end);
    const auto done = run({later + end, later + "exit 1", kDies}, 0);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, code);
    EXPECT_EQ(done.error().message, message);
  }
}

TEST_F(ContinuedJob, AProcessThatStartsAgainEndsWithProcessZero) {
  const std::string joins =
      kDiesOnce + std::string(
                      "trap 'echo \"error: cannot reach process 0\" >&2; exit 1' TERM\n"
                      "touch joins; for i in $(seq 600); do sleep 0.05; done; echo late");
  const std::string once_joining = "until [ -e joins ]; do sleep 0.05; done; ";
  const auto done = run({once_joining + "echo done", joins}, 1);
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_EQ(out_.str(), "[0] done\n");
  EXPECT_FALSE(says("cannot reach")) << err();

  std::filesystem::remove(folder_.path() / "died");
  std::filesystem::remove(folder_.path() / "joins");
  const auto lost = run({once_joining + kDies, joins}, 1);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message, "process 0 on here was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(out_.str(), "[0] done\n");
}

}  // namespace launch_job_test
}  // namespace grapevine
