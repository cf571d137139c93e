// What is said about a command line, an environment or a job file that is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "apps/console/usage_error.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"

namespace grapevine {
namespace usage_test {

namespace fs = std::filesystem;

ProcessResult run_in(const std::vector<std::string>& environment,
                     const std::vector<std::string>& arguments) {
  ProcessOptions options;
  options.environment = environment;
  return run_process(arguments, options);
}

void expect_usage_error(const ProcessResult& result, const std::string& line) {
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_EQ(ProcessResult::last_line(result.err).rfind("error: " + line, 0), 0u)
      << "wanted: error: " << line << "\n"
      << result.describe();
}

TEST(Usage, SaysWhatAValueShouldBe) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"train", "--workers", "1.5"}, "--workers '1.5': expected a whole number: see 'grapevine"},
      {{"train", "--workers", "0x10"}, "--workers '0x10': expected a whole number"},
      {{"train", "--workers="}, "--workers"},
      {{"train", "--steps", "9223372036854775807"},
       "--steps '9223372036854775807': expected a whole number, less than 9223372036854775807"},
      {{"train", "--threads", "99999999999"},
       "--threads '99999999999': expected a whole number, less than 2147483647"},
      {{"train", "--lr", "abc"}, "--lr 'abc': expected a number: see 'grapevine train --help'"},
      {{"train", "--lr"}, "--lr needs a value (learning rate"},
      {{"train", "--timeout"},
       "--timeout needs a value (seconds without a step of any rank after which the run fails): "
       "see 'grapevine train --help'"},
      {{"launch", "-n", "2", "-n", "3", "--", "average"}, "--processes is given more than once"},
      {{"train", "--epochs", "inf"}, "--epochs inf: expected a number above 0"},
      {{"train", "--json=maybe"}, "--json"},
      {{"train", "--alg", "sgp"}, "unknown option '--alg': did you mean '--algorithm'?"},
      {{"train", "--config", "x"},
       "unknown option '--config': 'grapevine train' takes its job file"},
      {{"train", "a.toml", "b.toml"}, "unexpected argument 'b.toml': see 'grapevine train --help'"},
      {{"topology", "ring", "-n", "8"}, "unknown option '-n': did you mean '--ranks'?"},
      {{"trace", "run", "--why"}, "--why needs a value (RANK:STEP: the updates that were"},
      {{"topology"}, "name is missing (a graph by its name, or file:PATH): see"},
      {{"bench", "p2p", "--bytes", "1,x"}, "--bytes 'x': expected a whole number"},
      {{"launch", "-n", "two", "--", "train"}, "--processes 'two': expected a whole number"}};
  for (const auto& [arguments, line] : cases) expect_usage_error(run_here(arguments), line);
}

TEST(Usage, TheHelpShowsTheCommandsOfAVerbInColumns) {
  const ProcessResult result = run_here({"wiring", "--help"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("\nlist                presets with their papers\n"), std::string::npos)
      << result.describe();
}

// "010" is ten: the parser of the command line would read eight.
TEST(Usage, LeadingZerosDoNotCount) {
  const ProcessResult result = run_here({"topology", "ring", "--ranks", "010", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("\"ranks\":10,"), std::string::npos) << result.describe();
}

TEST(Usage, NamesTheEnvironmentVariable) {
  expect_usage_error(run_here({"train"}, {"GRAPEVINE_LR=abc"}),
                     "GRAPEVINE_LR='abc': expected a number");
  expect_usage_error(run_here({"train"}, {"GRAPEVINE_STEPS=0"}),
                     "GRAPEVINE_STEPS: --steps 0: expected 1 or more");
  expect_usage_error(run_here({"train"}, {"GRAPEVINE_VALIDATE=never"}),
                     "GRAPEVINE_VALIDATE: unknown --validate 'never'");
  expect_usage_error(run_here({"train"}, {"GRAPEVINE_TENSORBOARD=perhaps"}),
                     "GRAPEVINE_TENSORBOARD='perhaps': expected true or false");
  // The command line's own mistake stays its own.
  expect_usage_error(run_here({"train", "--lr", "abc"}, {"GRAPEVINE_LR=0.1"}),
                     "--lr 'abc': expected a number");
  expect_usage_error(run_here({"launch", "-n", "1", "--", "train"}, {"GRAPEVINE_LAUNCH_GRACE=x"}),
                     "GRAPEVINE_LAUNCH_GRACE='x': expected a number");
  // Options that the help of this verb does not show.
  expect_usage_error(run_here({"simulate"}, {"GRAPEVINE_RESTARTS=abc"}),
                     "GRAPEVINE_RESTARTS='abc': expected a whole number");
  expect_usage_error(run_here({"simulate", "--join-timeout", "abc"}),
                     "--join-timeout 'abc': expected a number");
  expect_usage_error(run_in({"GRAPEVINE_LOG_LEVEL=foo"}, {"topology", "ring"}),
                     "GRAPEVINE_LOG_LEVEL: expected trace, debug, info");
}

TEST(Usage, WarnsOfVariablesThatNothingReads) {
  const std::vector<std::string> verb = {"topology", "ring", "--ranks", "4"};
  const ProcessResult misspelt = run_in({"GRAPEVINE_LRR=0.1"}, verb);
  EXPECT_EQ(misspelt.exit_code, 0) << misspelt.describe();
  EXPECT_NE(misspelt.err.find("GRAPEVINE_LRR is set, but nothing reads it: did you mean "
                              "GRAPEVINE_LR?"),
            std::string::npos)
      << misspelt.describe();
  const ProcessResult known =
      run_in({"GRAPEVINE_LR=0.1", "GRAPEVINE_LAUNCH_GRACE=1", "GRAPEVINE_CLUSTER_SECRET=x",
              "GRAPEVINE_LOG_LEVEL=warning", "GRAPEVINE_SET=wiring.peers=1", "GRAPEVINE_JOBS=2",
              "GRAPEVINE_WERROR=ON"},
             verb);
  EXPECT_EQ(known.err, "") << known.describe();
  // Once for all processes of a job.
  const ProcessResult second = run_in(
      {"GRAPEVINE_LRR=0.1", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"},
      verb);
  EXPECT_EQ(second.err, "") << second.describe();
}

TEST(Usage, GuessesVariablesByWhatDiffers) {
  const std::vector<std::string> known = {"GRAPEVINE_LR", "GRAPEVINE_BATCH_SIZE", ""};
  const auto warnings = unknown_variables(
      {"PATH=/bin", "GRAPEVINE_LR=1", "GRAPEVINE_BATCHSIZE=2", "GRAPEVINE_XYZW=3"}, known);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0],
            "the environment variable GRAPEVINE_BATCHSIZE is set, but nothing reads it: did you "
            "mean GRAPEVINE_BATCH_SIZE?");
  EXPECT_EQ(warnings[1], "the environment variable GRAPEVINE_XYZW is set, but nothing reads it");
}

TEST(Usage, NamesTheLineOfTheJobFile) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "job.toml").string();
  const auto expect = [&](const std::string& text, const std::string& line) {
    std::ofstream(path) << text;
    SCOPED_TRACE(text);
    expect_usage_error(run_here({"train", path}), path + line);
  };
  expect("steps = 4\nbatch_size = 16\nbatch-size = 8\n", ":");
  expect("steps = 4\nout = \"\"\n", ":2: out is empty");
  expect("steps = 4\nlr = nan\n", ":2: --lr");
  expect("steps = 4\nlr = \"abc\"\n", ":2: lr 'abc': expected a number");
  expect("tensorboard = \"maybe\"\n", ":1: tensorboard 'maybe': expected true or false");
  expect("\nvalidate = \"never\"\n", ":2: unknown --validate 'never'");
  expect("steps = 4\n\n[wiring]\nstaleness = -1\n", ":4: wiring.staleness");
  expect("steps = 4\n\n[wiring]\ntopolgy = \"ring\"\n", ":4: unknown wiring key 'topolgy'");
  // Values and names that would break the line.
  expect("steps = 4\nlr = \"a\\nb\"\n", ":2: lr 'a?b': expected a number");
  expect("steps = 4\n\"a\\nb\" = 1\n", ":2: unknown option 'a?b'");
  expect("[wiring]\nstaleness = \"a\\nb\"\n", ":2: wiring.staleness has control characters");
  expect("[wiring]\n\"a\\nb\" = [1]\n", ":2: the name of a wiring key has control characters");
  // Twice the same option: both places.
  std::ofstream(path) << "batch_size = 16\nsteps = 4\nbatch-size = 8\n";
  const ProcessResult twice = run_here({"train", path});
  EXPECT_NE(twice.err.find(path + ":1"), std::string::npos) << twice.describe();
  EXPECT_NE(twice.err.find(path + ":3"), std::string::npos) << twice.describe();
  // What the command line says is not the file's.
  std::ofstream(path) << "lr = 0.1\n";
  expect_usage_error(run_here({"train", path, "--lr", "nan"}), "--lr");
}

TEST(Usage, ShowsNoControlCharacters) {
  const TemporaryDirectory folder;
  const fs::path path = folder.path() / "job.toml";
  std::ofstream(path) << "algorithm = \"\\u0000\\u001b[31msgp\"\n";
  const ProcessResult result = run_here({"train", path.string()});
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_EQ(result.err.find('\0'), std::string::npos) << result.describe();
  EXPECT_EQ(result.err.find('\x1b'), std::string::npos) << result.describe();
}

TEST(Usage, HelpThatCannotBeWrittenIsAFailure) {
  for (const std::string arguments : {"train --help", "train --help-all", "--help", "--version"}) {
    ProcessOptions options;
    options.program = "/bin/sh";
    const ProcessResult result = run_process(
        {"-c", std::string(GRAPEVINE_EXECUTABLE) + " " + arguments + " > /dev/full"}, options);
    EXPECT_EQ(result.exit_code, 1) << arguments << "\n" << result.describe();
    EXPECT_NE(result.err.find("could not be written to stdout"), std::string::npos);
  }
}

TEST(Usage, HelpOfLaunchNamesTheCommandBehindIt) {
  const ProcessResult result = run_here({"launch", "--help"});
  EXPECT_NE(result.out.find("grapevine launch [OPTIONS] -- COMMAND"), std::string::npos)
      << result.describe();
}

// Of `grapevine VERB --help…`: the options that begin a line.
std::set<std::string> listed_options(const std::string& help) {
  std::set<std::string> options;
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100U) << line;
    const auto dashes = line.find("--");
    if (dashes == std::string::npos || dashes > 5) continue;
    options.insert(line.substr(dashes, line.find_first_of(" =", dashes) - dashes));
  }
  return options;
}

TEST(Usage, HelpShowsWhatMostRunsNeedAndHelpAllTheRest) {
  const std::string most = run_here({"train", "--help"}).out;
  const std::string all = run_here({"train", "--help-all"}).out;
  const auto few = listed_options(most), many = listed_options(all);
  EXPECT_LE(few.size(), 24U);
  EXPECT_GE(many.size(), 42U);
  EXPECT_TRUE(std::includes(many.begin(), many.end(), few.begin(), few.end()));
  for (const char* option : {"--algorithm", "--workers", "--model", "--data", "--lr", "--out"})
    EXPECT_EQ(few.count(option), 1U) << option;
  EXPECT_EQ(many.count("--cudnn-benchmark"), 1U);
  EXPECT_EQ(few.count("--cudnn-benchmark"), 0U);
  EXPECT_NE(most.find("More options: --help-all"), std::string::npos);
  for (const std::string& help : {most, all}) {
    EXPECT_EQ(help.find("\n\n\n"), std::string::npos) << help;
    EXPECT_EQ(help.find("Env:"), std::string::npos);
    const auto variable = help.find("GRAPEVINE_JSON for --json");
    EXPECT_NE(variable, std::string::npos) << help;
  }
}

TEST(Usage, EveryVerbsHelpFitsATerminal) {
  for (const std::string verb : {"launch", "node", "average", "topology", "bench"}) {
    const ProcessResult result = run_here({verb, "--help"});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_GE(listed_options(result.out).size(), 4U) << result.describe();
  }
}

}  // namespace usage_test
}  // namespace grapevine
