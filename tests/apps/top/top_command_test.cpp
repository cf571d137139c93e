// `top` in a terminal: keys, another size of the window, and the terminal after its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/apps/process.hpp"
#include "tests/apps/top/pseudo_terminal.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace top_command_test {

using testing::HasSubstr;

constexpr char kLeavesFullScreen[] = "\x1b[?1049l";

class TopCommandTest : public testing::Test {
 protected:
  TopCommandTest()
      : out_(folder_.path() / "run"),
        run_(with(small_run("sgp", out_), {"--steps", "100000000", "--trace", "off"})) {}
  void SetUp() override { ASSERT_TRUE(appears(out_ / "control.sock")); }

  static void expect_restored(PseudoTerminal& terminal) {
    EXPECT_TRUE(terminal.is_restored());
    EXPECT_THAT(terminal.output(), HasSubstr(kLeavesFullScreen));
  }

  TemporaryDirectory folder_;
  std::filesystem::path out_;
  Process run_;
};

TEST_F(TopCommandTest, ShowsTheRanksUntilQ) {
  PseudoTerminal terminal({"top", out_.string()}, 24, 80);
  EXPECT_TRUE(terminal.wait_for("sgp: mlp on glyphs")) << terminal.output();
  EXPECT_TRUE(terminal.wait_for("steps/s")) << terminal.output();
  terminal.press("x");
  EXPECT_TRUE(terminal.wait_for("waits that last")) << terminal.output();
  terminal.press("p");
  EXPECT_TRUE(terminal.wait_for("(paused)")) << terminal.output();
  terminal.forget();
  terminal.resize(12, 45);
  EXPECT_TRUE(terminal.wait_for("sgp: mlp")) << terminal.output();
  terminal.press("q");
  EXPECT_EQ(terminal.wait(), 0) << terminal.output();
  expect_restored(terminal);
}

TEST_F(TopCommandTest, RestoresTheTerminalAfterEverySignal) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    PseudoTerminal terminal({"top", out_.string()}, 24, 80);
    EXPECT_TRUE(terminal.wait_for("steps/s")) << terminal.output();
    EXPECT_FALSE(terminal.is_restored());  // the check can fail
    terminal.signal(number);
    EXPECT_EQ(terminal.wait(), 0) << terminal.output();
    expect_restored(terminal);
  }
}

TEST_F(TopCommandTest, EndsWithTheRun) {
  PseudoTerminal terminal({"top", out_.string()}, 24, 80);
  EXPECT_TRUE(terminal.wait_for("steps/s")) << terminal.output();
  EXPECT_EQ(run_process({"control", out_.string(), "stop"}).exit_code, 0);
  EXPECT_EQ(terminal.wait(), 0) << terminal.output();
  EXPECT_THAT(terminal.output(), HasSubstr("does not run"));
  expect_restored(terminal);
}

TEST_F(TopCommandTest, PrintsOnceWithoutATerminal) {
  const ProcessResult once = run_process({"top", out_.string(), "--once"});
  EXPECT_EQ(once.exit_code, 0) << once.describe();
  EXPECT_THAT(once.out, HasSubstr("sgp: mlp on glyphs"));
  EXPECT_THAT(once.out, HasSubstr("steps/s"));
  const ProcessResult json = run_process({"top", out_.string(), "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["ranks"].size(), 4U) << json.describe();
  const ProcessResult piped = run_process({"top", out_.string()});
  EXPECT_EQ(piped.exit_code, 2) << piped.describe();
  EXPECT_THAT(piped.err, HasSubstr("are not a terminal"));
  PseudoTerminal unknown({"top", out_.string()}, 24, 80, "no-such-terminal");
  EXPECT_EQ(unknown.wait(), 2) << unknown.output();
  EXPECT_THAT(unknown.output(), HasSubstr("of TERM is not known"));
}

}  // namespace top_command_test
}  // namespace grapevine
