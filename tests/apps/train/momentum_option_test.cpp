// `grapevine train --momentum` where no step uses it: refused where it is given, said where it is
// the default.
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace momentum_option_test {

ProcessResult train(const TemporaryDirectory& folder, const std::vector<std::string>& more) {
  const std::vector<std::string> arguments = {"train",
                                              "--model",
                                              "linear",
                                              "--data",
                                              "hyperplane",
                                              "--workers",
                                              "2",
                                              "--steps",
                                              "2",
                                              "--threads",
                                              "1",
                                              "--out",
                                              (folder.path() / "run").string()};
  return run_here(with(arguments, more));
}

TEST(MomentumOption, IsRefusedWhereNoStepUsesIt) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / "job.toml") << "momentum = 0.5\nalgorithm = \"downpour\"\n";
  for (const auto& [arguments, parts] :
       std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
           {{"--optimizer", "adam", "--momentum", "0.5"}, {"--momentum 0.5", "--optimizer adam"}},
           {{"--optimizer", "adamw", "--momentum", "0.9"}, {"--momentum 0.9", "--optimizer adamw"}},
           {{"--algorithm", "downpour", "--momentum", "0.9"}, {"--momentum 0.9", "'downpour'"}},
           {{"--algorithm", "adaptive", "--momentum", "0.1"}, {"--momentum 0.1", "'adaptive'"}},
           {{"--algorithm", "adaptive", "--set", "wiring.rule=agn", "--momentum", "0.1"},
            {"--momentum 0.1", "'agn'"}},
           {{(folder.path() / "job.toml").string()}, {"--momentum 0.5", "'downpour'"}}}) {
    const ProcessResult result = train(folder, arguments);
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    const std::string line = ProcessResult::last_line(result.err);
    for (const std::string& part : parts)
      EXPECT_NE(line.find(part), std::string::npos) << "wanted '" << part << "' in: " << line;
  }
}

TEST(MomentumOption, IsTakenWhereItCountsOrIsZero) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--momentum", "0.5"},
                                             {"--algorithm", "gem", "--momentum", "0.5"},
                                             {"--algorithm", "easgd", "--momentum", "0.5"},
                                             {"--algorithm", "downpour", "--momentum", "0"},
                                             {"--optimizer", "adam", "--momentum", "0"}}) {
    const TemporaryDirectory folder;
    const ProcessResult result = train(folder, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(result.err.find("without momentum"), std::string::npos) << result.describe();
  }
}

// The job file of the run has it: the default would be another run.
TEST(MomentumOption, OfZeroIsKeptWhereARunContinues) {
  const TemporaryDirectory folder;
  for (const std::vector<std::string>& job :
       {std::vector<std::string>{"--algorithm", "downpour"}, {"--optimizer", "adam"}}) {
    const std::string out = (folder.path() / job.back()).string();
    ProcessResult result = run_here(
        with({"train", "--data", "glyphs:64", "--model", "linear", "--workers", "2", "--steps", "4",
              "--batch-size", "8", "--threads", "1", "--momentum", "0", "--out", out},
             job));
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    result = run_here({"train", "--resume", out, "--steps", "6"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
}

TEST(MomentumOption, TheFirstLineSaysThatTheDefaultIsNotUsed) {
  const TemporaryDirectory folder;
  const ProcessResult result = train(folder, {"--algorithm", "downpour"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.err.find("2 steps, without momentum"), std::string::npos) << result.describe();
}

}  // namespace momentum_option_test
}  // namespace grapevine
