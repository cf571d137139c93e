// Which of two algorithms counts.
#include "apps/train/options/two_algorithms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace grapevine {
namespace two_algorithms_test {

constexpr char kOfGossip[] =
    "algorithm = \"sgp\"\n[wiring]\nexchange = \"gossip\"\ntopology = \"exponential\"\n";

// `train` with some arguments, and then the job file of another place.
struct Command {
  Command(std::vector<std::string> arguments, StateJob of_state, const std::string& join = "") {
    declare_train_options(app, options);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    options.of_state = of_state;
    options.join = join;
    options.resume = join.empty() ? "run" : "";
  }
  Expected<void> read() { return read_job_text(app, options, kOfGossip, "job.toml"); }

  CLI::App app;
  TrainOptions options;
};

TEST(TwoAlgorithms, ThatOfTheStateCountsWhereACommandIsRepeated) {
  Command command({"--algorithm", "ar", "--set", "wiring.all_reduce=ring"}, StateJob::counts);
  const auto read = command.read();
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(command.options.algorithm, "sgp");
  EXPECT_TRUE(command.options.set.empty()) << "it was for the other algorithm";
  EXPECT_EQ(command.options.notice,
            "run continues with its algorithm 'sgp': --algorithm ar with its --set does not count");
  EXPECT_TRUE(effective_wiring(command.options));

  Command same({"--algorithm", "sgp", "--set", "wiring.topology=ring"}, StateJob::counts);
  ASSERT_TRUE(same.read());
  EXPECT_EQ(same.options.set.size(), 1U);
  EXPECT_EQ(same.options.notice, "");
}

// Of a command with a job file of its own, which has been read.
TEST(TwoAlgorithms, ThatOfTheStateCountsMoreThanAJobFileOfTheCommand) {
  const std::string own = "algorithm = \"ar\"\nlr = 0.5\n[wiring]\nall_reduce = \"ring\"\n";
  struct Case {
    std::string state, algorithm, notice;
  };
  const std::string aggregate =
      "algorithm = \"ar\"\n[wiring]\nexchange = \"aggregate\"\nall_reduce = \"direct\"\n";
  for (const auto& [state, algorithm, notice] : std::vector<Case>{
           {kOfGossip, "sgp",
            "run continues with its algorithm 'sgp': 'ar' of own.toml does not count"},
           {aggregate, "ar", ""}}) {
    SCOPED_TRACE(state);
    Command command({}, StateJob::none);
    command.options.job_file = "own.toml";
    ASSERT_TRUE(read_job_text(command.app, command.options, own, "own.toml"));
    const auto kept = keep_algorithm(command.app, command.options, state, "job.toml");
    ASSERT_TRUE(kept) << kept.error().message;
    name_own_wiring(command.app, command.options);
    EXPECT_EQ(command.options.algorithm, algorithm);
    EXPECT_EQ(command.options.notice, notice);
    EXPECT_EQ(command.options.lr, 0.5) << "the rest is the command's";
    const auto wiring = effective_wiring(command.options);
    ASSERT_TRUE(wiring) << wiring.error().message;
    EXPECT_EQ(wiring->keys().count("all_reduce"), notice.empty() ? 1U : 0U);
  }
}

TEST(TwoAlgorithms, AnotherOneIsNotJoined) {
  Command command({"--algorithm", "ar"}, StateJob::counts, "127.0.0.1:7");
  const auto read = command.read();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, Errc::bad_input);
  EXPECT_EQ(read.error().message,
            "--join 127.0.0.1:7: the job there trains with algorithm 'sgp': leave --algorithm ar "
            "out");
  EXPECT_TRUE(Command({"--algorithm", "sgp"}, StateJob::counts, "127.0.0.1:7").read());
}

// A variable may be there for other runs.
TEST(TwoAlgorithms, AVariableDoesNotCountBesideTheJobThatIsJoined) {
  ASSERT_EQ(::setenv("GRAPEVINE_ALGORITHM", "ar", 1), 0);
  Command command({}, StateJob::counts, "127.0.0.1:7");
  const auto read = command.read();
  ::unsetenv("GRAPEVINE_ALGORITHM");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(command.options.algorithm, "sgp");
  EXPECT_EQ(command.options.notice,
            "the job at 127.0.0.1:7 has algorithm 'sgp': --algorithm ar does not count");
}

}  // namespace two_algorithms_test
}  // namespace grapevine
