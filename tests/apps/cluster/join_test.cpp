// How the processes of a job find each other, as users start them: where the head listens, who is
// let in, what people are told while they wait.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "net/addresses.hpp"
#include "tests/apps/cluster/network.hpp"
#include "tests/apps/cluster/tls_folder.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace join_test {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr auto kDeadline = 120s;  // only a hang reaches it

// Reserved until this program ends.
std::uint16_t free_port() {
  static std::vector<ReservedPort> reserved;
  reserved.push_back(*reserve_tcp_port());
  return reserved.back().number;
}

class Job : public testing::Test {
 protected:
  std::unique_ptr<Process> start(int process, int processes,
                                 const std::vector<std::string>& more = {},
                                 const std::vector<std::string>& environment = {}) const {
    const ProcessOptions options = options_of(process, processes, environment);
    return std::make_unique<Process>(arguments(more), options);
  }
  // With a file of its own in the place of /etc/hosts; needs root.
  std::unique_ptr<Process> start_with_hosts(const fs::path& hosts, int process, int processes,
                                            const std::vector<std::string>& more,
                                            const std::vector<std::string>& environment) const {
    ProcessOptions options = options_of(process, processes, environment);
    options.program = "/usr/bin/unshare";
    const std::vector<std::string> command = {
        "--mount",      "sh",
        "-c",           R"(mount --bind "$0" /etc/hosts && exec "$@")",
        hosts.string(), GRAPEVINE_EXECUTABLE};
    return std::make_unique<Process>(with(command, arguments(more)), options);
  }
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    return with(with(small_run("sgp", out()), {"--transport", "tcp"}), more);
  }
  ProcessOptions options_of(int process, int processes,
                            const std::vector<std::string>& environment) const {
    ProcessOptions options;
    options.environment = {"RANK=" + std::to_string(process),
                           "WORLD_SIZE=" + std::to_string(processes), "MASTER_ADDR=127.0.0.1",
                           "MASTER_PORT=" + std::to_string(port_)};
    for (const std::string& variable : environment) {
      const std::string key = variable.substr(0, variable.find('=') + 1);
      for (std::string& own : options.environment)
        if (own.rfind(key, 0) == 0) own.clear();
      options.environment.push_back(variable);
    }
    options.environment.erase(
        std::remove(options.environment.begin(), options.environment.end(), ""),
        options.environment.end());
    return options;
  }
  fs::path out() const { return folder_.path() / "run"; }
  static std::vector<std::string> endless() {
    return {"--steps", "1000000", "--checkpoint-every", "0.5"};
  }
  bool trains() const {
    for (const auto deadline = std::chrono::steady_clock::now() + kDeadline;
         std::chrono::steady_clock::now() < deadline; std::this_thread::sleep_for(20ms))
      if (fs::exists(out() / "checkpoint" / "latest")) return true;
    return false;
  }
  // Local addresses, as the kernel writes them, of sockets that listen on the job's port.
  std::set<std::string> listeners() const {
    std::ostringstream port;
    port << std::hex << std::uppercase << std::setw(4) << std::setfill('0') << port_;
    std::set<std::string> found;
    for (const std::string table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      std::ifstream file(table);
      for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string number, local, remote, state;
        words >> number >> local >> remote >> state;
        const auto colon = local.find(':');
        if (state == "0A" && colon != std::string::npos && local.substr(colon + 1) == port.str())
          found.insert(local.substr(0, colon));
      }
    }
    return found;
  }

  // The numbers of the sockets that a process has open, as the kernel writes them.
  static std::set<std::string> sockets_of(const Process& process) {
    std::set<std::string> numbers;
    std::error_code gone;
    const fs::path descriptors = "/proc/" + std::to_string(process.pid()) + "/fd";
    for (const auto& entry : fs::directory_iterator(descriptors, gone)) {
      const std::string target = fs::read_symlink(entry.path(), gone).string();
      const std::string kind = "socket:[";
      if (target.rfind(kind, 0) == 0)
        numbers.insert(target.substr(kind.size(), target.size() - kind.size() - 1));
    }
    return numbers;
  }
  // Local addresses of all sockets of a process that listen over TCP.
  static std::multiset<std::string> listeners_of(const Process& process) {
    const std::set<std::string> sockets = sockets_of(process);
    std::multiset<std::string> found;
    for (const std::string table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      std::ifstream file(table);
      for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::vector<std::string> columns;
        for (std::string word; words >> word;) columns.push_back(word);
        // Number, local, remote, state, queues, timer, retransmissions, user, time-out, socket.
        if (columns.size() > 9 && columns[3] == "0A" && sockets.count(columns[9]) > 0)
          found.insert(columns[1].substr(0, columns[1].find(':')));
      }
    }
    return found;
  }

  const std::uint16_t port_ = free_port();
  TemporaryDirectory folder_;
};

TEST_F(Job, OfOneMachineListensOnLoopbackAlone) {
  const auto head = start(0, 2, {"--join-timeout", "100"});
  ASSERT_TRUE(head->wait_for_output("to join at")) << head->so_far().describe();
  EXPECT_EQ(listeners(), std::set<std::string>{"0100007F"});
}

// The rendezvous, the data of each process, and the figures for Prometheus.
TEST_F(Job, OfOneMachineHasNoListenerThatOthersReach) {
  const auto head = start(0, 2, with(endless(), {"--metrics-port", "0"}));
  const auto other = start(1, 2, endless());
  ASSERT_TRUE(trains()) << head->so_far().describe();
  const auto of_head = listeners_of(*head), of_other = listeners_of(*other);
  EXPECT_EQ(of_head.size(), 3U);
  EXPECT_EQ(of_other.size(), 1U);
  EXPECT_EQ(of_head.count("0100007F"), of_head.size());
  EXPECT_EQ(of_other.count("0100007F"), of_other.size());
  EXPECT_EQ(head->so_far().err.find("has no secret"), std::string::npos)
      << head->so_far().describe();
}

// Of a job whose head's name has no address yet, and may be that of another machine: the data
// listener of the other process awaits connections at all addresses. On one machine it does not.
TEST_F(Job, OfOneMachineListensOnLoopbackWhereTheHeadsNameHasNoAddress) {
  const std::string name = "no.such.host.invalid";
  const auto alone = start(1, 2, {"--join-timeout", "100"},
                           {"MASTER_ADDR=" + name, "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2"});
  ASSERT_TRUE(alone->wait_for_output("waiting for process 0")) << alone->so_far().describe();
  const auto found = listeners_of(*alone);
  EXPECT_EQ(found, std::multiset<std::string>{"0100007F"});
}

// A launcher that makes no secret, and an address that other machines may reach.
TEST_F(Job, WarnsWhereItListensForOthersWithoutASecret) {
  const std::vector<std::string> everywhere = {"GRAPEVINE_LISTEN_HOST=0.0.0.0"};
  const std::string warning =
      "listens on all interfaces, port " + std::to_string(port_) + ", and this job has no secret";
  {
    const auto head = start(0, 2, {"--join-timeout", "100"}, everywhere);
    ASSERT_TRUE(head->wait_for_output("to join at")) << head->so_far().describe();
    EXPECT_NE(head->so_far().err.find(warning), std::string::npos) << head->so_far().describe();
    EXPECT_NE(head->so_far().err.find("Set GRAPEVINE_JOB_TOKEN to"), std::string::npos);
  }
  const auto head = start(0, 2, {"--join-timeout", "100"},
                          with(everywhere, {"GRAPEVINE_JOB_TOKEN=the job's own"}));
  ASSERT_TRUE(head->wait_for_output("to join at")) << head->so_far().describe();
  EXPECT_EQ(head->so_far().err.find("has no secret"), std::string::npos);
}

// The kernel keeps the connections of a head that was killed, and with them, if nothing is done,
// its port: here as long as the other process, which is stopped, keeps their other ends.
TEST_F(Job, OfAKilledHeadCanStartAgainOnItsPort) {
  const std::string certificates = cluster_test::made_certificates(folder_.path() / "tls");
  const std::vector<std::vector<std::string>> kinds = {{}, {"--tls", certificates}};
  for (const std::vector<std::string>& kind : kinds) {
    SCOPED_TRACE(kind.empty() ? "without TLS" : "with TLS");
    fs::remove_all(out());
    const auto killed = start(0, 2, with(endless(), kind));
    const auto living = start(1, 2, with(endless(), kind));
    ASSERT_TRUE(trains()) << killed->so_far().describe() << living->so_far().describe();
    living->signal(SIGSTOP);
    killed->signal(SIGKILL);
    killed->wait();
    const auto again = with(kind, {"--out", (folder_.path() / "again").string()});
    const auto head = start(0, 2, again), other = start(1, 2, again);
    EXPECT_EQ(head->wait().exit_code, 0) << head->so_far().describe();
    EXPECT_EQ(other->wait().exit_code, 0) << other->so_far().describe();
    living->signal(SIGCONT);
    EXPECT_EQ(living->wait().exit_code, 3) << living->so_far().describe();
    fs::remove_all(folder_.path() / "again");
  }
}

TEST_F(Job, LetsNobodyInWhoDoesNotKnowItsSecret) {
  const std::vector<std::string> secret = {"GRAPEVINE_JOB_TOKEN=the job's own"};
  const auto head = start(0, 2, {}, secret);
  for (const std::string other : {"GRAPEVINE_JOB_TOKEN=another", "GRAPEVINE_JOB_TOKEN="}) {
    const auto other_job = start(1, 2, {}, {other});
    EXPECT_EQ(other_job->wait().exit_code, 2);
    EXPECT_NE(ProcessResult::last_line(other_job->so_far().err).find("the secret differs"),
              std::string::npos)
        << other_job->so_far().describe();
  }
  const auto second = start(1, 2, {}, secret);
  EXPECT_EQ(head->wait().exit_code, 0) << head->so_far().describe();
  EXPECT_EQ(second->wait().exit_code, 0) << second->so_far().describe();
}

// The same port by chance: the second job receives the reason, the first job continues.
TEST_F(Job, IsNotEndedByAProcessOfAnotherJob) {
  const auto head = start(0, 2, {"--join-timeout", "100"});
  const auto other_job = start(2, 3);
  EXPECT_EQ(other_job->wait().exit_code, 2);
  EXPECT_NE(other_job->so_far().err.find("does not fit a job of 2 processes"), std::string::npos)
      << other_job->so_far().describe();
  const auto second = start(1, 2);
  EXPECT_EQ(head->wait().exit_code, 0) << head->so_far().describe();
  EXPECT_EQ(second->wait().exit_code, 0) << second->so_far().describe();
}

TEST_F(Job, MayReplaceAProcessThatWasKilledBeforeAllWereThere) {
  const auto head = start(0, 3, {"--join-timeout", "100"}, {"GRAPEVINE_LOG_LEVEL=debug"});
  const auto killed = start(1, 3, {"--join-timeout", "100"});
  ASSERT_TRUE(head->wait_for_output("process 1 has joined")) << head->so_far().describe();
  killed->signal(SIGKILL);
  ASSERT_TRUE(head->wait_for_output("waiting for its restart")) << head->so_far().describe();
  const auto again = start(1, 3), last = start(2, 3);
  for (const auto* process : {&head, &again, &last})
    EXPECT_EQ((*process)->wait().exit_code, 0) << (*process)->so_far().describe();
}

// Its connection lasts, and it is no second live process.
TEST_F(Job, MayReplaceAProcessThatWasSuspendedBeforeAllWereThere) {
  const auto head = start(0, 3, {"--join-timeout", "100"}, {"GRAPEVINE_LOG_LEVEL=debug"});
  const auto suspended = start(1, 3, {"--join-timeout", "100"});
  ASSERT_TRUE(head->wait_for_output("process 1 has joined")) << head->so_far().describe();
  suspended->signal(SIGSTOP);
  const auto again = start(1, 3, {"--join-timeout", "100"});
  ASSERT_TRUE(head->wait_for_output("takes its place")) << head->so_far().describe();
  suspended->signal(SIGCONT);
  const auto result = suspended->wait();
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_NE(ProcessResult::last_line(result.err).find("has taken its place"), std::string::npos)
      << result.describe();
  const auto last = start(2, 3);
  for (const auto* process : {&head, &again, &last})
    EXPECT_EQ((*process)->wait().exit_code, 0) << (*process)->so_far().describe();
}

TEST_F(Job, SaysForWhomItWaits) {
  const auto head = start(0, 3, {"--join-timeout", "7"});
  const std::string where = "127.0.0.1:" + std::to_string(port_);
  EXPECT_TRUE(head->wait_for_output("waiting for 2 of 3 processes (1, 2) to join at " + where))
      << head->so_far().describe();
  head->wait();
  const auto other = start(1, 3, {"--join-timeout", "7"});
  EXPECT_TRUE(other->wait_for_output("waiting for process 0 at " + where + ": Connection refused"))
      << other->so_far().describe();
  other->wait();
  Process submitter({"train", "--cluster", where, "--join-timeout", "7"});
  EXPECT_TRUE(submitter.wait_for_output("waiting for the first node at " + where))
      << submitter.so_far().describe();
  submitter.wait();
}

TEST_F(Job, NamesAHostThatHasNoAddress) {
  const std::string name = "no.such.host.invalid";
  const auto other = start(1, 2, {"--join-timeout", "1"}, {"MASTER_ADDR=" + name});
  const auto result = other->wait();
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  const std::string line = ProcessResult::last_line(result.err);
  EXPECT_NE(
      line.find("process 1 cannot reach process 0 at " + name + ":" + std::to_string(port_) + ": "),
      std::string::npos)
      << line;
  EXPECT_EQ(line.find("listen"), std::string::npos) << line;
}

// As in a cluster whose name service learns of the head's machine when that has started.
TEST_F(Job, WaitsForTheHostToHaveAnAddress) {
  if (!runs_well("unshare --mount true"))
    GTEST_SKIP() << "needs root, for a file in the place of /etc/hosts";
  const fs::path hosts = folder_.path() / "hosts";
  std::ofstream(hosts) << "127.0.0.1 localhost\n";
  const std::string name = "late-head.invalid";
  const auto other =
      start_with_hosts(hosts, 1, 2, {"--join-timeout", "100"}, {"MASTER_ADDR=" + name});
  ASSERT_TRUE(other->wait_for_output("waiting for process 0 at " + name))
      << other->so_far().describe();
  std::ofstream(hosts, std::ios::app) << "127.0.0.1 " << name << "\n";
  const auto head = start(0, 2, {"--join-timeout", "100"});
  EXPECT_EQ(head->wait().exit_code, 0) << head->so_far().describe();
  EXPECT_EQ(other->wait().exit_code, 0) << other->so_far().describe();
}

}  // namespace join_test
}  // namespace grapevine
