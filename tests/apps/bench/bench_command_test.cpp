// `grapevine bench` as a user runs it: what it prints, and what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "net/ucx/ucx.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace bench_command_test {

namespace fs = std::filesystem;
using nlohmann::json;

std::vector<json> objects_of(const std::string& text) {
  std::vector<json> objects;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) objects.push_back(json::parse(line));
  return objects;
}

void expect_refused(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& parts) {
  const ProcessResult result = run_process(arguments);
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_EQ(result.out, "") << result.describe();
  const std::string line = ProcessResult::last_line(result.err);
  EXPECT_EQ(line.rfind("error: ", 0), 0U) << result.describe();
  for (const std::string& part : parts)
    EXPECT_NE(line.find(part), std::string::npos) << "wanted '" << part << "' in: " << line;
}

struct Case {
  std::string kind;
  std::string transport;
  int ranks;
};

// For names of tests and failures.
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.kind << "_" << c.transport << "_" << c.ranks;
}

class BenchCommand : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().transport == "ucx" && !ucx_built_in())
      GTEST_SKIP() << "UCX is not in this build";
  }
};

TEST_P(BenchCommand, PrintsAnObjectForEachSize) {
  const auto& [kind, transport, ranks] = GetParam();
  const TemporaryDirectory folder;
  ProcessOptions options;
  options.environment = {"TMPDIR=" + folder.path().string()};
  const auto result =
      run_process({"bench", kind, "--transport", transport, "--ranks", std::to_string(ranks),
                   "--bytes", "8,4096,1000000", "--iterations", "5", "--json"},
                  options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<json> objects = objects_of(result.out);
  ASSERT_EQ(objects.size(), 3U) << result.describe();
  const std::vector<std::int64_t> sizes{8, 4096, 1000000};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const json& object = objects[i];
    SCOPED_TRACE(object.dump());
    std::set<std::string> keys;
    for (const auto& item : object.items()) keys.insert(item.key());
    EXPECT_EQ(keys, (std::set<std::string>{"kind", "transport", "ranks", "bytes", "median_s",
                                           "p10_s", "p99_s", "bandwidth_gbps"}));
    EXPECT_EQ(object["kind"], kind);
    EXPECT_EQ(object["transport"], transport);
    EXPECT_EQ(object["ranks"], ranks);
    EXPECT_EQ(object["bytes"], sizes[i]);
    const double median = object["median_s"];
    EXPECT_GT(object["p10_s"].get<double>(), 0);
    EXPECT_LE(object["p10_s"].get<double>(), median);
    EXPECT_LE(median, object["p99_s"].get<double>());
    const double share = kind == "p2p" ? 1 : 2.0 * (ranks - 1) / ranks;
    const double expected = share * static_cast<double>(sizes[i]) / median / 1e9;
    EXPECT_NEAR(object["bandwidth_gbps"].get<double>(), expected, 1e-9 * expected);
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "something was left behind";
}

INSTANTIATE_TEST_SUITE_P(Kinds, BenchCommand,
                         testing::Values(Case{"p2p", "inproc", 2}, Case{"p2p", "tcp", 2},
                                         Case{"p2p", "ucx", 2}, Case{"p2p", "shm", 2},
                                         Case{"p2p", "auto", 2}, Case{"allreduce", "shm", 3},
                                         Case{"allreduce", "inproc", 3},
                                         Case{"allreduce", "tcp", 2}, Case{"allreduce", "ucx", 3}),
                         testing::PrintToStringParamName());

TEST(BenchCommandLine, PrintsATableForPeople) {
  const auto result =
      run_process({"bench", "allreduce", "--ranks", "2", "--bytes", "1000,8", "--iterations", "3"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::istringstream in(result.out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  ASSERT_EQ(lines.size(), 4U) << result.describe();
  EXPECT_EQ(lines[0].rfind("allreduce over inproc, 2 ranks, 3 iterations", 0), 0U) << lines[0];
  EXPECT_NE(lines[1].find("GB/s"), std::string::npos);
  std::int64_t bytes = 0;
  std::istringstream(lines[2]) >> bytes;
  EXPECT_EQ(bytes, 1000);
  std::istringstream(lines[3]) >> bytes;
  EXPECT_EQ(bytes, 8);
}

TEST(BenchCommandLine, FileEnvironmentAndCommandLineInThisOrder) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "bench.toml").string();
  std::ofstream(file) << "ranks = 5\niterations = 7\nbytes = [16, 32]\njson = true\n";
  ProcessOptions options;
  options.environment = {"GRAPEVINE_RANKS=4", "GRAPEVINE_ITERATIONS=3"};
  const auto result =
      run_process({"bench", "allreduce", "--config", file, "--ranks", "3"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const std::vector<json> objects = objects_of(result.out);
  ASSERT_EQ(objects.size(), 2U);
  EXPECT_EQ(objects[0].at("ranks"), 3);
  EXPECT_EQ(objects[0].at("bytes"), 16);
  EXPECT_EQ(objects[1].at("bytes"), 32);
  std::ofstream(file) << "iteration = 7\n";
  expect_refused({"bench", "p2p", "--config", file}, {"bench.toml:1", "'iteration'"});
}

TEST(BenchCommandLine, EveryKindSaysWhatItMeasured) {
  const std::map<std::string, std::vector<std::string>> operations = {
      {"sparse", {"select", "select-sampled", "torch-topk", "merge"}},
      {"mix", {"memcpy", "fold", "meet", "debias", "sgd-step", "torch-sgd", "push-sum-step"}},
      {"trace", {"record", "encode", "write", "read"}}};
  const TemporaryDirectory folder;
  ProcessOptions options;
  options.environment = {"TMPDIR=" + folder.path().string()};
  for (const auto& [kind, names] : operations) {
    std::vector<std::string> command = {"bench", kind, "--bytes", "4000", "--iterations", "2"};
    if (kind == "sparse") command.insert(command.end(), {"--density", "0.01"});
    const ProcessResult plain = run_process(command, options);
    ASSERT_EQ(plain.exit_code, 0) << plain.describe();
    const std::string heading =
        kind == "sparse" ? " dense bytes x density  operation" : " bytes  operation";
    EXPECT_NE(plain.out.find(heading), std::string::npos) << plain.out;
    command.emplace_back("--json");
    const ProcessResult result = run_process(command, options);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const std::vector<json> objects = objects_of(result.out);
    ASSERT_EQ(objects.size(), names.size()) << result.describe();
    for (std::size_t i = 0; i < names.size(); ++i) {
      const json& object = objects[i];
      EXPECT_EQ(object.at("operation"), names[i]);
      EXPECT_NE(plain.out.find(names[i]), std::string::npos) << plain.out;
      EXPECT_EQ(object.at("kind"), kind);
      EXPECT_EQ(object.at("transport"), "inproc");
      EXPECT_EQ(object.at("ranks"), 1);
      EXPECT_EQ(object.at("bytes"), 4000);
      for (const char* key : {"median_s", "p10_s", "p99_s", "bandwidth_gbps"})
        EXPECT_GE(object.at(key), 0) << key;
    }
    if (kind == "trace") {
      EXPECT_GT(objects[0].at("records"), 0);
    }
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a file is left behind";
}

// Also in the thread of one rank of several.
TEST(BenchCommandLine, TooLittleMemoryIsOneLine) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer needs more address space than the limit leaves";
#endif
  ProcessOptions options;
  options.program = "/bin/sh";
  for (const std::string kind : {"allreduce", "p2p"}) {
    const ProcessResult result = run_process({"-c",
                                              "ulimit -v 7000000; exec \"$0\" bench " + kind +
                                                  " --ranks 2 --bytes 8000000000 --iterations 1",
                                              GRAPEVINE_EXECUTABLE},
                                             options);
    EXPECT_EQ(result.exit_code, 1) << result.describe();
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.describe();
    EXPECT_EQ(result.err.rfind("error: ", 0), 0U) << result.describe();
  }
}

TEST(BenchCommandLine, BadUsageIsOneLineAndExitCode2) {
  expect_refused({"bench"}, {"p2p", "allreduce"});
  expect_refused({"bench", "p2q"}, {"unknown benchmark 'p2q'", "'p2p'"});
  expect_refused({"bench", "p2p", "--transport", "tpc"}, {"'tpc'", "'tcp'", "inproc"});
  expect_refused({"bench", "p2p", "--ranks", "1"}, {"--ranks 1", "2..256"});
  expect_refused({"bench", "allreduce", "--ranks", "0"}, {"--ranks 0", "1..256"});
  expect_refused({"bench", "allreduce", "--ranks", "257"}, {"--ranks 257", "1..256"});
  expect_refused({"bench", "p2p", "--bytes", "8,0"}, {"--bytes 0", "expected 1.."});
  expect_refused({"bench", "p2p", "--bytes", "8,many"}, {"--bytes", "many"});
  expect_refused({"bench", "p2p", "--bytes", "9000000000"}, {"--bytes 9000000000", "8589934592"});
  expect_refused({"bench", "p2p", "--iterations", "0"}, {"--iterations 0", "expected 1.."});
  expect_refused({"bench", "p2p", "--iteratoins", "5"}, {"'--iteratoins'", "'--iterations'"});
  expect_refused({"bench", "p2p", "--as-rank", "0"}, {"--as-rank"});
}

TEST(BenchCommandLine, WhatCannotStartFailsWithExitCode1) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "file").string();
  std::ofstream(file) << "not a folder";
  ProcessOptions options;
  options.environment = {"TMPDIR=" + file};
  const auto result = run_process({"bench", "p2p", "--transport", "tcp", "--bytes", "8"}, options);
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_EQ(ProcessResult::last_line(result.err).rfind("error: ", 0), 0U) << result.describe();
}

// Partial sums: whom each policy waits for, whatever the transport.
TEST(BenchPartial, HasTheRanksThatEachPolicyPromises) {
  for (const std::string transport : {"inproc", "tcp"}) {
    SCOPED_TRACE(transport);
    const auto result = run_process({"bench", "partial", "--transport", transport, "--ranks", "3",
                                     "--bytes", "8,1000", "--skew", "0ms,2ms", "--iterations", "4",
                                     "--quorum", "2", "--json"});
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const std::vector<json> objects = objects_of(result.out);
    ASSERT_EQ(objects.size(), 2U * 2U * 4U) << result.describe();
    const std::map<std::string, double> least = {
        {"solo", 1}, {"majority", 1}, {"quorum 2", 2}, {"all", 3}};
    for (const json& object : objects) {
      SCOPED_TRACE(object.dump());
      EXPECT_EQ(object["kind"], "partial");
      EXPECT_GE(object["active_ranks"].get<double>(), least.at(object["activation"]));
      EXPECT_LE(object["active_ranks"].get<double>(), 3);
      EXPECT_GT(object["median_s"].get<double>(), 0);
      EXPECT_LE(object["p10_s"], object["median_s"]);
      EXPECT_LE(object["median_s"], object["p99_s"]);
    }
  }
}

TEST(BenchPartial, RefusesWhatItCannotMeasure) {
  expect_refused({"bench", "partial", "--skew", "soon"}, {"--skew 'soon'", "300ms"});
  expect_refused({"bench", "partial", "--ranks", "4", "--quorum", "5"}, {"--quorum 5", "1..4"});
}

}  // namespace bench_command_test
}  // namespace grapevine
