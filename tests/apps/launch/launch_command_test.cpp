// `grapevine launch` as a user runs it, mostly with shell scripts in the place of a verb.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/apps/process.hpp"

namespace grapevine {
namespace launch_command_test {

namespace fs = std::filesystem;

constexpr char kWaitForEver[] = "while :; do sleep 0.05; done";
// A shell cannot trap a signal that it has inherited as ignored.
constexpr char kTrapsUsr1[] =
    "[ -n \"$AGAIN\" ] || exec env --default-signal=USR1 AGAIN=1 \"$0\" \"$@\"\n";

// Processes that are this shell script.
class Script {
 public:
  explicit Script(const std::string& body) {
    write("script", body);
    options_.environment = {"GRAPEVINE_LAUNCH_PROGRAM=" + path("script"), "FOLDER=" + path("")};
  }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string write(const std::string& name, const std::string& body) const {
    std::ofstream(path(name)) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path(name), fs::perms::owner_all);
    return path(name);
  }
  std::string write_hosts(const std::string& text) const {
    std::ofstream(path("hosts")) << text;
    return path("hosts");
  }
  const ProcessOptions& options() const { return options_; }

  ProcessResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "launch");
    return run_process(arguments, options_);
  }

 private:
  TemporaryDirectory folder_;
  ProcessOptions options_;
};

std::set<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::set<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.insert(line);
  return lines;
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

// A process that is there, and no zombie.
bool runs(const std::string& pid) {
  std::ifstream stat("/proc/" + pid + "/stat");
  std::string text;
  std::getline(stat, text);
  const auto state = text.rfind(')');
  return state != std::string::npos && text[state + 2] != 'Z' && text[state + 2] != 'X';
}

bool ends(const std::string& pid) {
  for (int i = 0; i < 6000 && runs(pid); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !runs(pid);
}

void expect_error(const ProcessResult& result, int exit_code, const std::string& message) {
  EXPECT_EQ(result.exit_code, exit_code) << result.describe();
  EXPECT_NE(ProcessResult::last_line(result.err).find(message), std::string::npos)
      << "wanted: " << message << "\n"
      << result.describe();
  EXPECT_EQ(ProcessResult::last_line(result.err).rfind("error: ", 0), 0u) << result.describe();
}

TEST(LaunchCommand, HandsOutRanksAndOneHead) {
  const Script script(
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR \"$@\" "
      "port $MASTER_PORT");
  const ProcessResult result =
      script.run({"-n", "3", "--port", "23456", "--", "verb", "--x", "a b"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::set<std::string> wanted;
  for (const std::string rank : {"0", "1", "2"}) {
    const std::string ranks = rank + "/3 " + rank + "/3";
    wanted.insert("[" + rank + "] " + ranks + " 127.0.0.1 verb --x a b port 23456");
  }
  EXPECT_EQ(lines_of(result.out), wanted);
  EXPECT_EQ(result.err, "");
}

// Random, the same for all processes of a job, another one for each job; and on another machine not
// in the command line, which everybody there can read.
TEST(LaunchCommand, GivesEachJobASecretOfItsOwn) {
  const Script script("echo secret $GRAPEVINE_JOB_TOKEN");
  const std::string ssh = script.write("ssh", "echo \"$@\" >> \"$FOLDER/ssh-log\"; sh -c \"$2\"");
  const std::string hosts = script.write_hosts("localhost slots=2\nelsewhere slots=2\n");
  std::set<std::string> secrets;
  for (int job = 0; job < 2; ++job) {
    const ProcessResult result = script.run({"--hostfile", hosts, "--ssh", ssh, "--", "verb"});
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    std::set<std::string> of_job;
    for (const std::string& line : lines_of(result.out))
      of_job.insert(line.substr(line.find("secret ") + 7));
    ASSERT_EQ(of_job.size(), 1U) << result.describe();
    EXPECT_EQ(of_job.begin()->size(), 64U) << result.describe();
    secrets.insert(of_job.begin(), of_job.end());
  }
  EXPECT_EQ(secrets.size(), 2U);
  std::ifstream log(script.path("ssh-log"));
  const std::string commands(std::istreambuf_iterator<char>(log), {});
  EXPECT_NE(commands.find("elsewhere"), std::string::npos);
  for (const std::string& secret : secrets)
    EXPECT_EQ(commands.find(secret), std::string::npos) << commands;
}

// For those that join or control the job; a restart has it as well.
TEST(LaunchCommand, KeepsASecretThatIsGiven) {
  const Script script(
      "echo \"secret <$GRAPEVINE_JOB_TOKEN>\"; echo x >> \"$FOLDER/tries$RANK\"\n"
      "[ $RANK = 0 ] || exit 0; [ $(wc -l < \"$FOLDER/tries0\") -gt 1 ] || exit 1");
  const std::string ssh = script.write("ssh", "echo \"$@\" >> \"$FOLDER/ssh-log\"; sh -c \"$2\"");
  const std::string hosts = script.write_hosts("localhost slots=1\nelsewhere slots=1\n");
  const std::vector<std::string> over_ssh = {"launch",     "--hostfile", hosts, "--ssh", ssh,
                                             "--restarts", "1",          "--",  "verb"};
  ProcessOptions options = script.options();
  options.environment.emplace_back("GRAPEVINE_JOB_TOKEN= it's  mine\\ ");
  const ProcessResult kept = run_process(over_ssh, options);
  ASSERT_EQ(kept.exit_code, 0) << kept.describe();
  EXPECT_EQ(lines_of(kept.out),
            (std::set<std::string>{"[0] secret < it's  mine\\ >", "[1] secret < it's  mine\\ >"}));
  std::ifstream log(script.path("ssh-log"));
  const std::string commands(std::istreambuf_iterator<char>(log), {});
  EXPECT_NE(commands.find("elsewhere"), std::string::npos);
  EXPECT_EQ(commands.find("mine"), std::string::npos) << commands;

  options.environment.back() = "GRAPEVINE_JOB_TOKEN=";
  const ProcessResult random = run_process({"launch", "-n", "1", "--", "verb"}, options);
  EXPECT_EQ(random.out.size(), std::string("[0] secret <>\n").size() + 64) << random.describe();
  options.environment.back() = "GRAPEVINE_JOB_TOKEN=two\nlines";
  expect_error(run_process(over_ssh, options), 2, "GRAPEVINE_JOB_TOKEN has more than one line");
}

TEST(LaunchCommand, FindsAPortThatIsTheSameForAll) {
  const Script script("echo $MASTER_PORT > \"$FOLDER/port$RANK\"");
  ASSERT_EQ(script.run({"-n", "2", "--", "verb"}).exit_code, 0);
  std::array<int, 2> ports{};
  std::ifstream(script.path("port0")) >> ports[0];
  std::ifstream(script.path("port1")) >> ports[1];
  EXPECT_EQ(ports[0], ports[1]);
  EXPECT_GT(ports[0], 1023);
}

TEST(LaunchCommand, AnInterfaceGivesTheHeadItsAddress) {
  const Script script("echo $MASTER_ADDR $GRAPEVINE_NETWORK_INTERFACE");
  const auto result = script.run({"-n", "1", "--network-interface", "lo", "--", "verb"});
  EXPECT_EQ(result.out, "[0] 127.0.0.1 lo\n") << result.describe();
  expect_error(script.run({"-n", "1", "--network-interface", "nowhere0", "--", "verb"}), 2,
               "nowhere0");
}

// This machine may have none of that name, or another one.
TEST(LaunchCommand, AnInterfaceIsLookedUpOnlyWhereRankZeroIs) {
  const Script script("echo $MASTER_ADDR $GRAPEVINE_NETWORK_INTERFACE");
  const std::string ssh = script.write("ssh", "exec sh -c \"$2\"");
  const std::string hosts = script.write_hosts("far slots=1\nlocalhost slots=1\n");
  for (const std::string interface : {"mlx5_0:1", "nowhere0", "lo"}) {
    const auto result = script.run(
        {"--hostfile", hosts, "--ssh", ssh, "--network-interface", interface, "--", "verb"});
    EXPECT_EQ(lines_of(result.out),
              (std::set<std::string>{"[0] far " + interface, "[1] far " + interface}))
        << result.describe();
  }
}

// Pieces of lines, written at the same time by all.
TEST(LaunchCommand, LinesStayWhole) {
  const Script script(
      "i=0; while [ $i -lt 200 ]; do printf 'rank %s ' $RANK; printf 'line %s\\n' $i; "
      "printf 'rank %s ' $RANK >&2; printf 'error %s\\n' $i >&2; i=$((i + 1)); done; "
      "printf 'no newline %s' $RANK");
  const ProcessResult result = script.run({"-n", "4", "--", "verb"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::set<std::string> out;
  std::set<std::string> err;
  for (const std::string rank : {"0", "1", "2", "3"}) {
    for (int i = 0; i < 200; ++i) {
      const std::string start = "[" + rank + "] rank " + rank;
      out.insert(start + " line " + std::to_string(i));
      err.insert(start + " error " + std::to_string(i));
    }
    out.insert("[" + rank + "] no newline " + rank);
  }
  EXPECT_EQ(lines_of(result.out), out);
  EXPECT_EQ(lines_of(result.err), err);
}

TEST(LaunchCommand, MuchOutputOfAProcessThatEndsIsNotLost) {
  const Script script("head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo end");
  const ProcessResult result = script.run({"-n", "2", "--", "verb"});
  ASSERT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), 'x'), 6000000);
  EXPECT_EQ(lines_of(result.out).count("[1] end"), 1u);
}

// The job does not end with whoever read its output; what it starts knows SIGPIPE as ever.
TEST(LaunchCommand, WhoeverReadsTheOutputMayGo) {
  const Script script(
      "echo one; sleep 0.3; echo two; sleep 0.3; echo three\n"
      "grep SigIgn /proc/self/status > \"$FOLDER/ignored\"; echo > \"$FOLDER/done\"");
  ProcessOptions shell = script.options();
  shell.program = "/bin/sh";
  run_process(
      {"-c", "\"$@\" | head -n 1", "sh", GRAPEVINE_EXECUTABLE, "launch", "-n", "1", "--", "verb"},
      shell);
  EXPECT_TRUE(fs::exists(script.path("done")));
  std::ifstream file(script.path("ignored"));
  std::string name;
  std::uint64_t mask = ~0ULL;
  file >> name >> std::hex >> mask;
  EXPECT_EQ(mask >> (SIGPIPE - 1) & 1, 0U) << std::hex << mask;
}

// A pager on its first page: signals pass all the same, and the end does not wait for it for ever.
TEST(LaunchCommand, AReaderThatStandsStillDoesNotHoldSignalsUp) {
  // Full: more than pipes hold has been written, in whole pages, and no more is taken.
  const Script script(
      "trap 'echo bye; echo > \"$FOLDER/told\"; kill $!; exit 0' TERM\n"
      "yes \"$(head -c 1023 /dev/zero | tr '\\0' x)\" & last=0\n"
      "while now=$(sed -n 's/wchar: //p' /proc/$!/io)\n"
      "[ $now -lt 1000000 ] || [ $now != $last ]; do last=$now; sleep 0.3; done\n"
      "echo > \"$FOLDER/full\"; " +
      std::string(kWaitForEver));
  ProcessOptions shell = script.options();
  shell.program = "/bin/sh";
  const std::string wait_for = "until [ -e \"$FOLDER/";
  for (const std::string errors : {"", "2>&1"}) {
    SCOPED_TRACE(errors);
    for (const char* name : {"full", "told", "code"}) fs::remove(script.path(name));
    run_process(
        {"-c",
         "( \"$@\" " + errors + " & " + wait_for +
             "full\" ]; do sleep 0.05; done; kill -TERM $!\n" +
             "wait $!; echo $? > \"$FOLDER/part\"; mv \"$FOLDER/part\" \"$FOLDER/code\" ) | " +
             wait_for + "code\" ]; do sleep 0.05; done",
         "sh", GRAPEVINE_EXECUTABLE, "launch", "-n", "1", "--", "verb"},
        shell);
    EXPECT_TRUE(fs::exists(script.path("told")));
    std::ifstream file(script.path("code"));
    int code = -1;
    file >> code;
    EXPECT_EQ(code, 1);
  }
}

TEST(LaunchCommand, JsonOfRankZeroIsTheOutput) {
  const ProcessResult result =
      run_process({"launch", "-n", "2", "--", "average", "--rounds", "3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::istringstream lines(result.out);
  int round = 0;
  for (std::string line; std::getline(lines, line); ++round)
    EXPECT_EQ(nlohmann::json::parse(line).at("round"), round);
  EXPECT_EQ(round, 4);
  EXPECT_NE(result.err.find("[1] {\"round\":3"), std::string::npos) << result.describe();
  EXPECT_EQ(result.err.find("[0]"), std::string::npos) << result.describe();
}

// Wherever it is asked for.
TEST(LaunchCommand, JsonFromAnyPlaceIsTheOutput) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "options.toml").string();
  std::ofstream(file) << "processes = 2\njson = true\n";
  ProcessOptions verbs, launchs;
  verbs.environment = {"GRAPEVINE_JSON=1"};
  launchs.environment = {"GRAPEVINE_LAUNCH_PROCESSES=2"};
  const std::vector<std::string> verb = {"--", "average", "--rounds", "3"};
  for (const auto& [options, arguments] :
       std::vector<std::pair<ProcessOptions, std::vector<std::string>>>{
           {verbs, {"launch", "-n", "2"}},
           {launchs, {"launch", "--json"}},
           {{}, {"launch", "--config", file}}}) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), verb.begin(), verb.end());
    const ProcessResult result = run_process(all, options);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(nlohmann::json::parse(ProcessResult::last_line(result.out)).at("round"), 3);
    EXPECT_NE(result.err.find("[1] {\"round\":3"), std::string::npos) << result.describe();
  }
}

// The distribution's torchrun, whose agent occupies MASTER_PORT. Debian 12's fails under its Python
// 3.11 without -r and -t.
TEST(LaunchCommand, TorchrunIsALauncher) {
  const char* torchrun = "/usr/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) GTEST_SKIP() << "python3-torch is not installed";
  const TemporaryDirectory folder;
  const std::string out = (folder.path() / "run").string();
  ProcessOptions options;
  options.program = torchrun;
  options.timeout = std::chrono::seconds(240);
  const ProcessResult result = run_process({"--no_python",
                                            "-r",
                                            "0:1",
                                            "-t",
                                            "0:1",
                                            "--nproc_per_node",
                                            "2",
                                            "--master_port",
                                            "29713",
                                            GRAPEVINE_EXECUTABLE,
                                            "train",
                                            "--model",
                                            "linear",
                                            "--data",
                                            "glyphs:640",
                                            "--steps",
                                            "5",
                                            "--threads",
                                            "1",
                                            "--out",
                                            out},
                                           options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("outputs in " + out), std::string::npos) << result.describe();
  EXPECT_NE(result.err.find("2 workers"), std::string::npos) << result.describe();
}

TEST(LaunchCommand, StartsTheShippedVerbs) {
  const ProcessResult result = run_process({"launch", "-n", "2", "train", "--help"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  for (const std::string rank : {"[0] ", "[1] "})
    EXPECT_NE(result.out.find(rank + "  --algorithm"), std::string::npos) << result.describe();
}

TEST(LaunchCommand, ForwardsSignals) {
  const Script script(kTrapsUsr1 +
                      std::string("trap 'echo saved' USR1; trap 'echo stopping; exit 0' TERM INT\n"
                                  "echo ready$RANK; ") +
                      kWaitForEver);
  for (const int number : {SIGINT, SIGTERM}) {
    Process launch({"launch", "-n", "3", "--", "verb"}, script.options());
    for (const std::string rank : {"0", "1", "2"})
      ASSERT_TRUE(launch.wait_for_output("ready" + rank)) << launch.so_far().describe();
    launch.signal(SIGUSR1);
    for (const std::string rank : {"0", "1", "2"})
      ASSERT_TRUE(launch.wait_for_output("[" + rank + "] saved")) << launch.so_far().describe();
    launch.signal(number);
    const ProcessResult result = launch.wait();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    for (const std::string rank : {"0", "1", "2"})
      EXPECT_EQ(lines_of(result.out).count("[" + rank + "] stopping"), 1u) << result.describe();
  }
}

// A second passes before the program that a process becomes can handle a signal.
TEST(LaunchCommand, ARequestForACheckpointKillsNoProcessThatStarts) {
  const Script script("grep SigIgn /proc/self/status");
  const std::string ssh = script.write("ssh", "exec sh -c \"$2\"");
  const std::string hosts = script.write_hosts("localhost slots=1\nelsewhere slots=1\n");
  const ProcessResult result = script.run({"--hostfile", hosts, "--ssh", ssh, "--", "verb"});
  for (const std::string rank : {"[0] ", "[1] "}) {
    const std::string name = rank + "SigIgn:";
    const auto at = result.out.find(name);
    ASSERT_NE(at, std::string::npos) << result.describe();
    const auto mask = std::stoull(result.out.substr(at + name.size()), nullptr, 16);
    EXPECT_EQ(mask >> (SIGUSR1 - 1) & 1, 1U) << result.describe();
  }

  Process launch({"launch", "-n", "1", "--", "average", "--rounds", "3"});
  const std::string id = std::to_string(launch.pid());
  const std::string children = "/proc/" + id + "/task/" + id + "/children";
  for (int i = 0; i < 6000; ++i) {
    std::string child;
    if (std::ifstream(children) >> child && fs::exists("/proc/" + child)) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  launch.signal(SIGUSR1);
  const ProcessResult real = launch.wait();
  EXPECT_EQ(real.exit_code, 0) << real.describe();
}

// Three for each process, which is more than a shell allows by default long before 4096 of them.
TEST(LaunchCommand, TakesAsManyDescriptorsAsItMay) {
  const Script script("echo $(ulimit -n)");
  ProcessOptions shell = script.options();
  shell.program = "/bin/sh";
  const auto limited = [&](const std::string& limit) {
    return run_process({"-c", limit + "; exec \"$@\"", "sh", GRAPEVINE_EXECUTABLE, "launch", "-n",
                        "30", "--", "verb"},
                       shell);
  };
  const ProcessResult soft = limited("ulimit -S -n 64");
  EXPECT_EQ(soft.exit_code, 0) << soft.describe();
  std::set<std::string> wanted;
  for (int rank = 0; rank < 30; ++rank) wanted.insert("[" + std::to_string(rank) + "] 64");
  EXPECT_EQ(lines_of(soft.out), wanted) << soft.describe();
  expect_error(limited("ulimit -n 64"), 1, "Too many open files: raise the limit (ulimit -n)");
}

TEST(LaunchCommand, WhatIgnoresTheRequestToEndIsKilledAfterTheGrace) {
  const Script script("trap '' TERM; echo ready$RANK; " + std::string(kWaitForEver));
  Process launch({"launch", "-n", "2", "--grace", "0.2", "--", "verb"}, script.options());
  ASSERT_TRUE(launch.wait_for_output("ready0"));
  ASSERT_TRUE(launch.wait_for_output("ready1"));
  launch.signal(SIGTERM);
  const ProcessResult result = launch.wait();
  expect_error(result, 1, "was killed by signal 9 (SIGKILL)");
  EXPECT_NE(result.err.find("process 1 on " + host_name() + " has not ended"), std::string::npos)
      << result.describe();
}

TEST(LaunchCommand, ASecondInterruptKillsAtOnce) {
  const Script script("trap 'echo interrupted' INT; echo ready$RANK; " + std::string(kWaitForEver));
  Process launch({"launch", "-n", "2", "--grace", "80000", "--", "verb"}, script.options());
  ASSERT_TRUE(launch.wait_for_output("ready0"));
  ASSERT_TRUE(launch.wait_for_output("ready1"));
  launch.signal(SIGINT);
  ASSERT_TRUE(launch.wait_for_output("[0] interrupted"));
  ASSERT_TRUE(launch.wait_for_output("[1] interrupted"));
  launch.signal(SIGINT);
  expect_error(launch.wait(), 130, "ended at once by a second Ctrl-C");
}

// Also where the others find the same mistake and are told to end before they can exit.
TEST(LaunchCommand, SaysBadInputOnce) {
  const Script script(
      "echo 'error: no good' >&2; : > \"$FOLDER/said$RANK\"\n"
      "if [ $RANK != 0 ]; then " +
      std::string(kWaitForEver) +
      "; fi\n"
      "until [ -e \"$FOLDER/said1\" ] && [ -e \"$FOLDER/said2\" ]; do sleep 0.05; done; exit 2");
  const ProcessResult result = script.run({"-n", "3", "--", "verb"});
  expect_error(result, 2, "no good");
  EXPECT_EQ(result.err.find("no good"), result.err.rfind("no good")) << result.describe();
}

TEST(LaunchCommand, NamesTheDeadProcessAndEndsTheOthers) {
  const Script script(
      "echo $$ > \"$FOLDER/pid$RANK\"; trap 'echo told to end; exit 0' TERM\n"
      "if [ $RANK = 1 ]; then until [ -s \"$FOLDER/pid0\" ] && [ -s \"$FOLDER/pid2\" ]; do "
      "sleep 0.05; done; $DIE; fi; " +
      std::string(kWaitForEver));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"exit 7", "exited with code 7"},
      {"exit 1", "exited with code 1"},
      {"kill -KILL $$", "was killed by signal 9 (SIGKILL)"},
      {"kill -SEGV $$", "was killed by signal 11 (SIGSEGV)"}};
  for (const auto& [die, how] : cases) {
    SCOPED_TRACE(die);
    for (const std::string rank : {"0", "1", "2"}) fs::remove(script.path("pid" + rank));
    ProcessOptions options = script.options();
    const std::string body = die == "kill -KILL $$"   ? "sh -c 'kill -KILL $PPID'"
                             : die == "kill -SEGV $$" ? "sh -c 'kill -SEGV $PPID'"
                                                      : die;
    script.write("die", body);
    options.environment.push_back("DIE=. " + script.path("die"));
    const ProcessResult result = run_process({"launch", "-n", "3", "--", "verb"}, options);
    expect_error(result, die.rfind("kill", 0) == 0 ? 3 : 1,
                 "error: process 1 on " + host_name() + " " + how);
    EXPECT_EQ(lines_of(result.out).count("[0] told to end"), 1u) << result.describe();
    EXPECT_EQ(lines_of(result.out).count("[2] told to end"), 1u) << result.describe();
  }
}

// What a process says of others counts for the job, and what it says of going on ends the last
// line.
TEST(LaunchCommand, ALostProcessAndAStopAreToldByTheExitCode) {
  const Script lost(
      "[ $RANK = 0 ] || { trap '' TERM; touch \"$FOLDER/there\"; exec sleep 1000; }\n"
      "until [ -e \"$FOLDER/there\" ]; do sleep 0.05; done\n"
      "echo 'error: rank 1 of process 1 is gone; resume with --resume out' >&2; exit 3");
  const auto silent = lost.run({"-n", "2", "--grace", "0.2", "--", "verb"});
  expect_error(silent, 3, "error: rank 1 of process 1 is gone; resume with --resume out");
  EXPECT_EQ(silent.err.find("[0] error"), std::string::npos) << silent.describe();
  EXPECT_NE(silent.err.find("process 1 on " + host_name() + " has not ended: killing it"),
            std::string::npos)
      << silent.describe();

  const Script stopped("echo x >> \"$FOLDER/tries\"; echo 'error: stopped' >&2; exit 4");
  expect_error(stopped.run({"-n", "1", "--restarts", "3", "--", "verb"}), 4, "error: stopped");
  EXPECT_EQ(fs::file_size(stopped.path("tries")), 2u) << "a stop is no reason to start again";

  const Script again("echo x >> \"$FOLDER/tries\"; exit 3");
  expect_error(again.run({"-n", "1", "--restarts", "3", "--", "verb"}), 3, "exited with code 3");
  EXPECT_EQ(fs::file_size(again.path("tries")), 8u);
}

// As `train` does: process 0 ends last, and it alone says how the job ended.
TEST(LaunchCommand, ProcessZeroSpeaksForAJobThatWasStopped) {
  const Script script(
      "stop() { [ $RANK = 0 ] || { echo > \"$FOLDER/ended\"; exit 0; }\n"
      "until [ -e \"$FOLDER/ended\" ]; do sleep 0.05; done; sleep 0.3\n"
      "echo saved; echo 'error: stopped; resume with --resume out' >&2; exit 4; }\n"
      "trap stop TERM; echo ready$RANK; " +
      std::string(kWaitForEver));
  for (const std::string policy : {"stop", "continue", "restart"}) {
    SCOPED_TRACE(policy);
    fs::remove(script.path("ended"));
    Process launch({"launch", "-n", "2", "--on-failure", policy, "--", "verb"}, script.options());
    ASSERT_TRUE(launch.wait_for_output("ready0")) << launch.so_far().describe();
    ASSERT_TRUE(launch.wait_for_output("ready1")) << launch.so_far().describe();
    launch.signal(SIGTERM);
    const ProcessResult result = launch.wait();
    expect_error(result, 4, "error: stopped; resume with --resume out");
    EXPECT_EQ(lines_of(result.out).count("[0] saved"), 1u) << result.describe();
  }
}

TEST(LaunchCommand, WhatKilledCountsMoreThanWhatLostAPeer) {
  const Script script(
      "trap '' TERM\n"
      "[ $RANK = 0 ] && { until [ -e \"$FOLDER/told\" ]; do sleep 0.05; done; "
      "exec sh -c 'kill -KILL $$'; }\n"
      "echo 'error: rank 0 is gone; resume with --resume out' >&2\n"
      "touch \"$FOLDER/told\"; exit 3");
  const auto result = script.run({"-n", "2", "--", "verb"});
  expect_error(result, 3,
               "error: process 0 on " + host_name() +
                   " was killed by signal 9 (SIGKILL); resume with --resume out");
}

// Those that would have said what to resume from are gone.
TEST(LaunchCommand, NamesTheCheckpointOfAJobThatDiedAsAWhole) {
  const Script script(
      "mkdir -p \"$FOLDER/out/checkpoint\"\n"
      "[ -z \"$SAVES\" ] || ln -sfn step-1 \"$FOLDER/out/checkpoint/latest\"\n"
      "[ -z \"$SAVES\" ] || mkdir \"$FOLDER/out/checkpoint/step-1\"\n"
      "exec sh -c 'kill -KILL $$'");
  const std::string out = script.path("out");
  const auto last_line = [&](bool saves, const std::string& resumed = "") {
    ProcessOptions options = script.options();
    if (saves) options.environment.push_back("SAVES=1");
    std::vector<std::string> arguments = {"launch", "-n", "1", "--", "train", "--out", out};
    if (!resumed.empty()) arguments.insert(arguments.end(), {"--resume", resumed});
    const auto result = run_process(arguments, options);
    EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.describe();
    return ProcessResult::last_line(result.err);
  };
  const std::string killed =
      "error: process 0 on " + host_name() + " was killed by signal 9 (SIGKILL); ";
  EXPECT_EQ(last_line(false), killed + "no checkpoint was written");
  EXPECT_EQ(last_line(true), killed + "resume with --resume " + out);
  // That one is of the job before.
  EXPECT_EQ(last_line(false), killed + "no checkpoint was written");
  // Before its next checkpoint a job that was resumed can go on from the one that it came from.
  EXPECT_EQ(last_line(false, "before"), killed + "resume with --resume before");
  EXPECT_EQ(last_line(false, out), killed + "resume with --resume " + out);
}

// `train` reads its job file: a pipe can be read once, and where nobody writes to it yet, opening
// it waits.
TEST(LaunchCommand, LeavesAJobFileThatIsAPipeToTheCommand) {
  const Script script("[ $RANK != 0 ] || cat \"$FOLDER/job.toml\"");
  const std::string pipe = script.path("job.toml");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0) << std::strerror(errno);
  std::thread writer([&] { std::ofstream(pipe) << "out = 'somewhere'" << std::endl; });
  const auto result = script.run({"-n", "2", "--", "train", pipe});
  // Where nobody has read: lets the writer go.
  const int descriptor = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  writer.join();
  ::close(descriptor);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "[0] out = 'somewhere'\n") << result.describe();
}

// UCX_DEBUG_SIGNO names a signal on which libucs prints its state; its crash handlers are another
// matter. Which there are besides, e.g. those of a sanitizer, the first run tells.
TEST(LaunchCommand, CrashHandlersOfLibucsGoWhateverItsDebugSignalIs) {
  const Script script("sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$PPID/status");
  std::array<std::uint64_t, 2> caught{};
  for (std::size_t i = 0; i < caught.size(); ++i) {
    ProcessOptions options = script.options();
    options.environment.push_back(i == 0 ? "UCX_DEBUG_SIGNO" : "UCX_DEBUG_SIGNO=SIGUSR2");
    const ProcessResult result = run_process({"launch", "-n", "1", "--", "verb"}, options);
    ASSERT_EQ(result.out.rfind("[0] ", 0), 0U) << result.describe();
    caught[i] = std::stoull(result.out.substr(4), nullptr, 16);
  }
  for (const int crash : {SIGILL, SIGBUS, SIGFPE, SIGSEGV})
    EXPECT_EQ((caught[0] ^ caught[1]) >> (crash - 1) & 1, 0U) << "signal " << crash;
}

TEST(LaunchCommand, ASignalThatEndsTheOnlyProcessShowsAsInAShell) {
  const Script script("kill -SEGV $$");
  expect_error(script.run({"-n", "1", "--", "verb"}), 128 + SIGSEGV, "signal 11 (SIGSEGV)");
  expect_error(script.run({"-n", "2", "--", "verb"}), 3, "signal 11 (SIGSEGV)");
}

TEST(LaunchCommand, BadInputIsReportedOnce) {
  expect_error(
      run_process({"launch", "-n", "3", "--restarts", "5", "--", "average", "--ranks", "0"}), 2,
      "ranks");
  const Script script("echo about to fail >&2; echo 'error: no such data' >&2; exit 2");
  for (const std::string policy : {"stop", "continue", "restart"}) {
    const auto result = script.run({"-n", "4", "--on-failure", policy, "--", "verb"});
    expect_error(result, 2, "error: no such data");
    const auto first = result.err.find("no such data");
    EXPECT_EQ(result.err.find("no such data", first + 1), std::string::npos) << result.describe();
  }
}

// The others may still read their data when they are asked to end.
TEST(LaunchCommand, AProcessThatHasNotBegunSaysNothingOfBeingAskedToEnd) {
  const Script script(
      "if [ $RANK = 0 ]; then\n"
      "  until [ -e \"$FOLDER/ready1\" ] && [ -e \"$FOLDER/ready2\" ]; do sleep 0.05; done\n"
      "  echo 'error: no such data' >&2; exit 2\n"
      "fi\n"
      "trap 'echo \"error: stopped by a signal before training began\" >&2; exit 1' TERM\n"
      "touch \"$FOLDER/ready$RANK\"\n" +
      std::string(kWaitForEver));
  const auto result = script.run({"-n", "3", "--", "verb"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.err, "error: no such data\n");
}

TEST(LaunchCommand, AStopBeforeTrainingIsSaidOnce) {
  const Script script(
      "trap 'echo \"error: stopped by a signal before training began\" >&2; exit 1' TERM\n"
      "touch \"$FOLDER/ready$RANK\"\n"
      "until [ -e \"$FOLDER/ready0\" ] && [ -e \"$FOLDER/ready1\" ]; do sleep 0.05; done\n"
      "[ $RANK != 0 ] || kill -TERM $PPID\n" +
      std::string(kWaitForEver));
  const auto result = script.run({"-n", "2", "--", "verb"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.err, "error: stopped by a signal before training began\n");
}

TEST(LaunchCommand, ErrorLinesOfOtherFailuresAreKept) {
  const Script script("echo 'error: first' >&2; echo between >&2; echo 'error: loss' >&2; exit 1");
  const auto result = script.run({"-n", "1", "--", "verb"});
  EXPECT_EQ(result.err, "[0] error: first\n[0] between\n[0] error: loss\nerror: process 0 on " +
                            host_name() + " exited with code 1\n");
}

// Rank 1 is killed twice; the restarts of all processes together are counted.
TEST(LaunchCommand, AKilledProcessStartsAgainBesideTheOthers) {
  const Script script(
      "if [ $RANK = 1 ]; then\n"
      "  echo x >> \"$FOLDER/starts\"\n"
      "  [ $(wc -l < \"$FOLDER/starts\") -gt 2 ] || kill -9 $$\n"
      "  touch \"$FOLDER/joined\"; echo joined; exit 0\n"
      "fi\n"
      "until [ -e \"$FOLDER/joined\" ]; do sleep 0.05; done; echo done");
  const ProcessResult result =
      script.run({"-n", "3", "--on-failure", "continue", "--restarts", "2", "--", "verb"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(lines_of(result.out), (std::set<std::string>{"[0] done", "[1] joined", "[2] done"}));
  for (const char* count : {"(1 of 2)", "(2 of 2)"})
    EXPECT_NE(result.err.find("was killed by signal 9 (SIGKILL): starting it again " +
                              std::string(count)),
              std::string::npos)
        << result.err;
}

// Without process 0 there is no run to join, and a failure would come again.
TEST(LaunchCommand, OnlyLostProcessesOtherThanTheFirstStartAgain) {
  const Script script("echo x >> \"$FOLDER/starts\"; [ $RANK = 0 ] && kill -9 $$; exit 5");
  const ProcessResult result =
      script.run({"-n", "2", "--on-failure", "continue", "--restarts", "2", "--", "verb"});
  EXPECT_NE(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.err.find("starting it again"), std::string::npos) << result.err;
}

TEST(LaunchCommand, SurvivorsGoOnWhereThatIsWanted) {
  const Script script(
      "[ $RANK = 1 ] && { touch \"$FOLDER/dead\"; exit 5; }\n"
      "until [ -e \"$FOLDER/dead\" ]; do sleep 0.05; done; sleep 0.3; echo done; exit $CODE");
  ProcessOptions options = script.options();
  options.environment.push_back("CODE=0");
  const std::vector<std::string> arguments = {"launch",   "-n", "3",   "--on-failure",
                                              "continue", "--", "verb"};
  const ProcessResult result = run_process(arguments, options);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(lines_of(result.out), (std::set<std::string>{"[0] done", "[2] done"}));
  EXPECT_NE(
      result.err.find("process 1 on " + host_name() + " exited with code 5: the others continue"),
      std::string::npos)
      << result.describe();
  // How process 0 has ended is how the job has.
  options.environment.back() = "CODE=6";
  expect_error(run_process(arguments, options), 1,
               "process 0 on " + host_name() + " exited with code 6");
}

// The other process of this run would wait for it, for as long as --join-timeout.
TEST(LaunchCommand, AFailureBeforeTheRunHasBegunEndsAJobThatWouldContinue) {
  const Script script("[ $RANK = 1 ] && exit 7\nexec '" + std::string(GRAPEVINE_EXECUTABLE) +
                      "' \"$@\"");
  const ProcessResult result = script.run(
      {"-n", "2", "--on-failure", "continue", "--", "train", "--model", "linear", "--data",
       "glyphs:64", "--steps", "2", "--join-timeout", "3600", "--out", script.path("run")});
  expect_error(result, 1, "error: process 1 on " + host_name() + " exited with code 7");
  EXPECT_EQ(result.err.find("the others continue"), std::string::npos) << result.err;
}

// The run of another job has begun, and does not end with the first of those that join it.
TEST(LaunchCommand, ProcessesThatJoinARunStandEachForItself) {
  const Script lost(
      "[ $RANK = 1 ] && { touch \"$FOLDER/dead\"; kill -9 $$; }\n"
      "until [ -e \"$FOLDER/dead\" ]; do sleep 0.05; done; sleep 0.3; echo done");
  const ProcessResult result =
      lost.run({"-n", "2", "--on-failure", "continue", "--", "train", "--join", "127.0.0.1:1"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "[0] done\n");
  EXPECT_NE(result.err.find("(SIGKILL): the others continue"), std::string::npos)
      << result.describe();

  const Script drained(
      "[ $RANK = 0 ] && { touch \"$FOLDER/left\"; exit 0; }\n"
      "until [ -e \"$FOLDER/left\" ]; do sleep 0.05; done; sleep 0.5; echo done");
  const ProcessResult others =
      drained.run({"-n", "2", "--grace", "0.1", "--", "train", "--join", "127.0.0.1:1"});
  EXPECT_EQ(others.exit_code, 0) << others.describe();
  EXPECT_EQ(others.out, "[1] done\n");
}

// Others end with success though process 0 has failed: it alone evaluates and writes the results.
TEST(LaunchCommand, SurvivorsThatEndWellDoNotHideAFailureOfProcessZero) {
  for (const std::string end : {"exit 1", "kill -9 $$"}) {
    SCOPED_TRACE(end);
    const Script script("[ $RANK = 0 ] || exit 0; " + end);
    const auto result = script.run({"-n", "3", "--on-failure", "continue", "--", "verb"});
    EXPECT_EQ(result.exit_code, end == "exit 1" ? 1 : 3) << result.describe();
  }
}

TEST(LaunchCommand, RestartsFromTheCheckpointOfTheRunBefore) {
  // The first attempt leaves no checkpoint, the second one does; the fourth is fine.
  const Script script(
      "echo x >> \"$FOLDER/tries$RANK\"; n=$(wc -l < \"$FOLDER/tries$RANK\")\n"
      "echo \"try $n resume ${GRAPEVINE_RESUME:-nothing} args $*\"\n"
      "[ $RANK = 0 ] || exit 0\n"
      "[ $n -ge 2 ] && mkdir -p \"$FOLDER/run/checkpoint/latest\"\n"
      "[ $n -ge 4 ] || exit 1");
  const std::string out = script.path("run");
  const auto result =
      script.run({"-n", "2", "--restarts", "3", "--", "train", "--out", out, "--resume", "older"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto lines = lines_of(result.out);
  const std::string kept = " args train --out " + out;
  EXPECT_EQ(lines.count("[0] try 1 resume nothing" + kept + " --resume older"), 1u);
  EXPECT_EQ(lines.count("[0] try 2 resume nothing" + kept + " --resume older"), 1u);
  EXPECT_EQ(lines.count("[0] try 3 resume " + out + kept), 1u) << result.describe();
  EXPECT_EQ(lines.count("[0] try 4 resume " + out + kept), 1u) << result.describe();
  EXPECT_NE(result.err.find("starting again (3 of 3)"), std::string::npos) << result.describe();
}

// Wherever `train` is told its folder: one that began anew would remove what the last one has left.
TEST(LaunchCommand, ARestartFindsTheFolderOfAJobFileAndOfAResumedRun) {
  for (const std::string from : {"file", "environment", "resume"}) {
    SCOPED_TRACE(from);
    const Script script(
        "echo x >> \"$FOLDER/tries\"; n=$(wc -l < \"$FOLDER/tries\")\n"
        "echo \"try $n resume ${GRAPEVINE_RESUME:-nothing} args $*\"\n"
        "mkdir -p \"$FOLDER/run/checkpoint\"; ln -sfn $n \"$FOLDER/run/checkpoint/latest\"\n"
        "mkdir -p \"$FOLDER/run/checkpoint/$n\"; [ $n -ge 2 ] || exit 1");
    const std::string out = script.path("run"), job = script.path("job.toml");
    std::ofstream(job) << (from == "file" ? "out = '" + out + "'\n" : "lr = 0.1\n");
    fs::create_directories(out + "/checkpoint");
    ProcessOptions options = script.options();
    if (from == "environment") options.environment.push_back("GRAPEVINE_OUT=" + out);
    std::vector<std::string> launch = {"launch",     "-n", "1",  "--on-failure", "restart",
                                       "--restarts", "1",  "--", "train",        job};
    if (from == "resume") launch.insert(launch.end(), {"--resume", out});
    const auto result = run_process(launch, options);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(lines_of(result.out).count("[0] try 2 resume " + out + " args train " + job), 1u)
        << result.describe();
  }
}

// What another job has left there is not what this one goes on from.
TEST(LaunchCommand, ARestartLeavesOlderCheckpointsAlone) {
  const Script script(
      "echo x >> \"$FOLDER/tries\"; n=$(wc -l < \"$FOLDER/tries\")\n"
      "echo \"try $n resume ${GRAPEVINE_RESUME:-nothing}\"\n"
      "[ $n = 2 ] && ln -sfn new \"$FOLDER/run/checkpoint/latest\"\n"
      "[ $n -ge 3 ] || exit 1");
  const fs::path checkpoints = script.path("run/checkpoint");
  fs::create_directories(checkpoints / "old");
  fs::create_directories(checkpoints / "new");
  fs::create_directory_symlink("old", checkpoints / "latest");
  const std::string out = script.path("run");
  const auto result = script.run({"-n", "1", "--restarts", "2", "--", "train", "--out", out});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const auto lines = lines_of(result.out);
  EXPECT_EQ(lines.count("[0] try 2 resume nothing"), 1u) << result.describe();
  EXPECT_EQ(lines.count("[0] try 3 resume " + out), 1u) << result.describe();
  EXPECT_NE(result.err.find("no new checkpoint in " + out), std::string::npos) << result.describe();
}

// What a kill between two renames leaves; `train` finds the checkpoint in the same way.
TEST(LaunchCommand, ARestartFindsTheNewestCheckpointWhereTheLinkPointsToNothing) {
  const Script script(
      "echo x >> \"$FOLDER/tries\"; n=$(wc -l < \"$FOLDER/tries\")\n"
      "echo \"try $n resume ${GRAPEVINE_RESUME:-nothing}\"\n"
      "[ $n = 1 ] || exit 0\n"
      "mkdir -p \"$FOLDER/run/checkpoint/epoch-0001\"; ln -s nothing "
      "\"$FOLDER/run/checkpoint/latest\"\n"
      "echo '{\"version\": 2, \"ranks\": 1}' > "
      "\"$FOLDER/run/checkpoint/epoch-0001/job.json\"; exit 1");
  const std::string out = script.path("run");
  const auto result = script.run({"-n", "1", "--restarts", "1", "--", "train", "--out", out});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(lines_of(result.out).count("[0] try 2 resume " + out), 1u) << result.describe();
}

TEST(LaunchCommand, RestartsNoMoreThanAsked) {
  const Script script("[ $RANK = 0 ] || exit 0; echo x >> \"$FOLDER/tries\"; exit 1");
  const auto tries = [&] {
    std::ifstream file(script.path("tries"));
    return std::count(std::istreambuf_iterator<char>(file), {}, 'x');
  };
  expect_error(script.run({"-n", "2", "--restarts", "2", "--", "verb"}), 1, "exited with code 1");
  EXPECT_EQ(tries(), 3);
  expect_error(script.run({"-n", "2", "--on-failure", "restart", "--", "verb"}), 1, "process 0");
  EXPECT_EQ(tries(), 7);
  expect_error(script.run({"-n", "2", "--", "verb"}), 1, "process 0");
  EXPECT_EQ(tries(), 8);
}

// An upgrade, or a build, beside a job that runs for days.
TEST(LaunchCommand, ARestartTakesTheFileThatHasReplacedTheProgram) {
  const Script script("");
  const std::string program = script.path("grapevine");
  fs::copy_file(GRAPEVINE_EXECUTABLE, program);
  ProcessOptions options;
  options.program = program;
  Process launch({"launch", "-n", "1", "--on-failure", "restart", "--restarts", "1", "--", "node",
                  "--listen", "127.0.0.1:0"},
                 options);
  ASSERT_TRUE(launch.wait_for_output("[0] listening on")) << launch.so_far().describe();
  fs::rename(script.write("newer", "echo newer \"$@\""), program);
  const std::string pid = std::to_string(launch.pid());
  pid_t child = 0;
  std::ifstream("/proc/" + pid + "/task/" + pid + "/children") >> child;
  ASSERT_GT(child, 0);
  ::kill(child, SIGKILL);
  const ProcessResult result = launch.wait();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(ProcessResult::last_line(result.out), "[0] newer node --listen 127.0.0.1:0")
      << result.describe();
}

TEST(LaunchCommand, ARequestToStopIsNoReasonToRestart) {
  const Script script("echo x >> \"$FOLDER/tries$RANK\"; trap 'exit 1' TERM; echo ready$RANK; " +
                      std::string(kWaitForEver));
  Process launch({"launch", "-n", "1", "--restarts", "5", "--", "verb"}, script.options());
  ASSERT_TRUE(launch.wait_for_output("ready0"));
  launch.signal(SIGTERM);
  expect_error(launch.wait(), 1, "exited with code 1");
  EXPECT_EQ(fs::file_size(script.path("tries0")), 2u);
}

// What launch started ends with it, even where it cannot say goodbye.
TEST(LaunchCommand, NoProcessOutlivesLaunch) {
  const Script script("echo $$ > \"$FOLDER/pid$RANK\"; echo ready$RANK; exec sleep 1000");
  const std::string ssh = script.write("ssh", "exec setsid --wait sh -c \"$2\"");
  const std::string hosts = script.write_hosts("localhost slots=1\nelsewhere slots=1\n");
  Process launch({"launch", "--hostfile", hosts, "--ssh", ssh, "--", "verb"}, script.options());
  ASSERT_TRUE(launch.wait_for_output("ready0")) << launch.so_far().describe();
  ASSERT_TRUE(launch.wait_for_output("ready1")) << launch.so_far().describe();
  launch.signal(SIGKILL);
  launch.wait();
  for (const std::string rank : {"0", "1"}) {
    std::string pid;
    std::ifstream(script.path("pid" + rank)) >> pid;
    ASSERT_FALSE(pid.empty());
    EXPECT_TRUE(ends(pid)) << "rank " << rank;
  }
}

TEST(LaunchCommand, StartsProcessesOverSsh) {
  const Script script(
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR "
      "$GRAPEVINE_SEED$GRAPEVINE_CLUSTER_SECRET \"$@\"");
  // A login shell without what launch has in its environment.
  const std::string ssh = script.write("ssh",
                                       "host=$2; [ \"$1\" = -x ] && echo to $host >&2\n"
                                       "exec env -i PATH=\"$PATH\" sh -c \"$3\"");
  const std::string hosts = script.write_hosts("far slots=2\nuser@farther slots=2 # last\n");
  ProcessOptions options = script.options();
  options.environment.push_back("GRAPEVINE_SEED=a 'b'");
  options.environment.push_back("GRAPEVINE_CLUSTER_SECRET=stays here");
  const ProcessResult result = run_process(
      {"launch", "-n", "3", "--hostfile", hosts, "--ssh", ssh + " -x", "--", "verb", "it's $HOME"},
      options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(lines_of(result.out), (std::set<std::string>{"[0] 0/3 0/2 far a 'b' verb it's $HOME",
                                                         "[1] 1/3 1/2 far a 'b' verb it's $HOME",
                                                         "[2] 2/3 0/1 far a 'b' verb it's $HOME"}));
  EXPECT_EQ(lines_of(result.err),
            (std::set<std::string>{"[0] to far", "[1] to far", "[2] to user@farther"}));
}

TEST(LaunchCommand, SignalsAndDeathsCrossSsh) {
  const Script script(kTrapsUsr1 +
                      std::string("trap 'echo saved' USR1; trap 'echo stopping; exit 4' TERM\n"
                                  "echo ready$RANK; ") +
                      kWaitForEver);
  // A process group of its own, as on another machine: nothing but the connection reaches it.
  const std::string ssh = script.write("ssh", "setsid sh -c \"$2\"");
  const std::string hosts = script.write_hosts("far slots=2\n");
  Process launch({"launch", "--hostfile", hosts, "--ssh", ssh, "--", "verb"}, script.options());
  ASSERT_TRUE(launch.wait_for_output("ready0")) << launch.so_far().describe();
  ASSERT_TRUE(launch.wait_for_output("ready1")) << launch.so_far().describe();
  launch.signal(SIGUSR1);
  ASSERT_TRUE(launch.wait_for_output("[0] saved")) << launch.so_far().describe();
  ASSERT_TRUE(launch.wait_for_output("[1] saved")) << launch.so_far().describe();
  launch.signal(SIGTERM);
  const ProcessResult result = launch.wait();
  expect_error(result, 4, " on far exited with code 4");
  EXPECT_EQ(lines_of(result.out).count("[0] stopping"), 1u) << result.describe();
  EXPECT_EQ(lines_of(result.out).count("[1] stopping"), 1u) << result.describe();
}

TEST(LaunchCommand, AnSshThatFailsIsNamed) {
  const Script script("echo never");
  const std::string ssh = script.write("ssh", "echo 'cannot resolve' >&2; exit 255");
  const std::string hosts = script.write_hosts("nowhere slots=1\n");
  const auto result = script.run({"--hostfile", hosts, "--ssh", ssh, "--", "verb"});
  expect_error(result, 3, "process 0 on nowhere exited with code 255: ssh could not connect");
  EXPECT_NE(result.err.find("[0] cannot resolve"), std::string::npos);
  expect_error(script.run({"--hostfile", hosts, "--ssh", "/no/such/ssh", "--", "verb"}), 1,
               "/no/such/ssh");
}

// ssh says no more when a signal ends the process there, or when the connection breaks.
TEST(LaunchCommand, AProcessThatSshLosesIsLost) {
  const Script script("trap 'echo told to end; exit 0' TERM; echo > \"$FOLDER/there$RANK\"\n" +
                      std::string(kWaitForEver));
  const std::string ssh =
      script.write("ssh",
                   "[ \"$1\" = far ] && exec sh -c \"$2\"\n"
                   "until [ -e \"$FOLDER/there0\" ]; do sleep 0.05; done; exit 255");
  const std::string hosts = script.write_hosts("far slots=1\nfarther slots=1\n");
  const auto result = script.run({"--hostfile", hosts, "--ssh", ssh, "--", "verb"});
  expect_error(result, 3, "process 1 on farther exited with code 255: ssh could not connect");
  EXPECT_EQ(lines_of(result.out).count("[0] told to end"), 1u) << result.describe();
}

// Rank 0 lives for up to ten seconds after the loss of the connection to it, and keeps the folder.
class LostConnection : public testing::Test {
 protected:
  LostConnection() {
    fs::create_directories(script_.path("run"));
    const std::string ssh =
        script_.write("ssh",
                      "[ -e \"$FOLDER/there\" ] && again=1\n"
                      "exec 4<&0; setsid sh -c \"$2\" <&4 & exec 4<&- </dev/null\n"
                      "[ -z \"$again\" ] || { wait $!; exit $?; }\n"
                      "until [ -e \"$FOLDER/there\" ]; do sleep 0.05; done; exit 255");
    arguments_ = {"launch",
                  "--hostfile",
                  script_.write_hosts("far slots=1\n"),
                  "--ssh",
                  ssh,
                  "--on-failure",
                  "restart",
                  "--",
                  "verb",
                  "--out",
                  script_.path("run")};
  }

  const Script script_{
      "echo x >> \"$FOLDER/starts\"; exec 9< \"$FOLDER/run\"\n"
      "flock -n 9 || { echo 'error: another run writes there' >&2; exit 2; }\n"
      "[ ! -e \"$FOLDER/there\" ] || { echo \"resume $GRAPEVINE_RESUME\"; exit 0; }\n"
      "exec > /dev/null 2>&1\n"  // nothing reads it any more
      "trap 'sleep 3; mkdir -p \"$FOLDER/run/checkpoint/latest\"; exit 4' TERM\n"
      "touch \"$FOLDER/there\"; " +
      std::string(kWaitForEver)};
  std::vector<std::string> arguments_;
};

TEST_F(LostConnection, ARestartWaitsForTheEndOfItsProcess) {
  const ProcessResult result = run_process(arguments_, script_.options());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "[0] resume " + script_.path("run") + "\n") << result.describe();
}

TEST_F(LostConnection, ARequestToStopEndsTheWait) {
  Process launch(arguments_, script_.options());
  ASSERT_TRUE(launch.wait_for_output("waiting 12 s")) << launch.so_far().describe();
  launch.signal(SIGUSR1);
  launch.signal(SIGTERM);
  expect_error(launch.wait(), 3, "process 0 on far exited with code 255");
  EXPECT_EQ(fs::file_size(script_.path("starts")), 2U);
}

// Rank 0 exits with 1 in its first life; rank 1, over ssh, does not end when it is asked to.
class KilledOverSsh : public testing::Test {
 protected:
  std::vector<std::string> launch(const std::string& ssh) const {
    return {"launch",  "--hostfile", script_.write_hosts("localhost slots=1\nfar slots=1\n"),
            "--ssh",   ssh,          "--on-failure",
            "restart", "--restarts", "1",
            "--grace", "0.2",        "--",
            "verb"};
  }

  const Script script_{
      "cd \"$FOLDER\"\n"
      "if [ $RANK = 0 ]; then\n"
      "  [ -e again ] && exit 0\n"
      "  until [ -s first ]; do sleep 0.05; done; touch again; exit 1\n"
      "fi\n"
      "if [ -s first ]; then kill -0 $(cat first) && echo beside || echo alone; exit 0; fi\n"
      "trap '' TERM; echo $$ > part; mv part first; " +
      std::string(kWaitForEver)};
};

// Two of them on one GPU find no memory.
TEST_F(KilledOverSsh, HasEndedBeforeTheJobStartsAgain) {
  const std::string ssh = script_.write("ssh", "exec setsid --wait sh -c \"$2\"");
  const ProcessResult result = run_process(launch(ssh), script_.options());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "[1] alone\n") << result.describe();
  EXPECT_NE(result.err.find("process 1 on far has not ended: killing it"), std::string::npos);
}

// Then the process there ends as after a loss of the connection, if at all.
TEST_F(KilledOverSsh, ARestartWaitsForItWhereSshDoesNotEnd) {
  const std::string ssh = script_.write("ssh", "echo x > \"$FOLDER/first\"; exec sleep 1000");
  Process process(launch(ssh), script_.options());
  ASSERT_TRUE(process.wait_for_output("waiting 12 s")) << process.so_far().describe();
  process.signal(SIGTERM);
  expect_error(process.wait(), 1, "process 0 on localhost exited with code 1");
}

TEST(LaunchCommand, BadUsageIsOneClearLine) {
  const Script script("echo never");
  const std::string hosts = script.write_hosts("node1 slots=2\nnode2 slots=two\n");
  expect_error(script.run({"-n", "2"}), 2, "no command");
  expect_error(script.run({"-n", "2", "--"}), 2, "no command");
  expect_error(script.run({"--", "verb"}), 2, "-n");
  expect_error(script.run({"-n", "0", "--", "verb"}), 2, "-n 0");
  expect_error(script.run({"-n", "x", "--", "verb"}), 2, "x");
  expect_error(script.run({"-n", "99999", "--", "verb"}), 2, "4096");
  expect_error(script.run({"-n", "2", "--port", "65536", "--", "verb"}), 2, "--port 65536");
  expect_error(script.run({"-n", "2", "--grace", "nan", "--", "verb"}), 2, "--grace");
  expect_error(script.run({"-n", "2", "--restarts", "-1", "--", "verb"}), 2, "--restarts -1");
  expect_error(script.run({"-n", "2", "--on-failure", "stopp", "--", "verb"}), 2, "'stop'");
  expect_error(script.run({"-n", "2", "--on-failure", "stop", "--restarts", "2", "--", "verb"}), 2,
               "--restarts 2 and --on-failure stop");
  expect_error(script.run({"-n", "2", "--ssh", "", "--", "verb"}), 2, "--ssh");
  expect_error(script.run({"-n", "2", "--hostfle", "f", "--", "verb"}), 2, "'--hostfile'");
  expect_error(script.run({"--hostfile", script.path("none"), "--", "verb"}), 2, "none");
  std::ofstream(script.path("many")) << "a slots=4000\nb slots=4000\n";
  expect_error(script.run({"--hostfile", script.path("many"), "--", "verb"}), 2,
               "8000 slots, of which at most 4096");
  expect_error(script.run({"--hostfile", script.path(""), "--", "verb"}), 2, "cannot be read");
  expect_error(script.run({"--hostfile", hosts, "--", "verb"}), 2, "hosts:2: ");
  script.write_hosts("node1 slots=2\nnode2\n");
  expect_error(script.run({"-n", "4", "--hostfile", hosts, "--", "verb"}), 2, "3 slots");
  expect_error(run_process({"launch", "-n", "2", "--", "trian"}), 2, "did you mean 'train'");
}

}  // namespace launch_command_test
}  // namespace grapevine
