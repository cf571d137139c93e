// Nodes that wait for jobs, and `train --cluster`, as users start them: processes on loopback.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "net/addresses.hpp"
#include "tests/apps/cluster/tls_folder.hpp"
#include "tests/apps/node/relay.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace node_test {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr auto kTimeout = std::chrono::seconds(180);

ProcessOptions options(const std::vector<std::string>& environment = {},
                       const std::string& program = GRAPEVINE_EXECUTABLE) {
  ProcessOptions options;
  options.program = program;
  options.environment = environment;
  options.timeout = kTimeout;
  return options;
}

// A node that runs until the test ends it.
class RunningNode {
 public:
  explicit RunningNode(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment = {},
                       const std::string& program = GRAPEVINE_EXECUTABLE)
      : process_(with({"node", "--listen", "127.0.0.1:0"}, arguments),
                 options(environment, program)) {
    const std::string marker = "listening on ";
    if (!process_.wait_for_output(marker)) return;
    const std::string& out = process_.so_far().out;
    const std::size_t begin = out.find(marker) + marker.size();
    address_ = out.substr(begin, out.find('\n', begin) - begin);
  }
  const std::string& address() const { return address_; }
  Process& process() { return process_; }

 private:
  Process process_;
  std::string address_;
};

class Nodes : public testing::Test {
 protected:
  // The first node, and others that joined it.
  void start_nodes(int count, int slots) {
    first_ =
        std::make_unique<RunningNode>(std::vector<std::string>{"--slots", std::to_string(slots)});
    ASSERT_NE(first_->address(), "") << first_->process().so_far().describe();
    for (int i = 1; i < count; ++i) add_node(slots);
    expect_state(count, count * slots, "idle");
  }
  void add_node(int slots) {
    others_.push_back(std::make_unique<RunningNode>(
        std::vector<std::string>{"--join", first_->address(), "--slots", std::to_string(slots)}));
    ASSERT_TRUE(others_.back()->process().wait_for_output("joined " + first_->address()))
        << others_.back()->process().so_far().describe();
  }
  void expect_state(int nodes, int slots, const std::string& state) {
    const std::string text = std::to_string(nodes) + (nodes == 1 ? " node, " : " nodes, ") +
                             std::to_string(slots) + (slots == 1 ? " slot, " : " slots, ") + state;
    EXPECT_TRUE(first_->process().wait_for_output(text))
        << text << first_->process().so_far().describe();
  }
  std::vector<std::string> job(const std::string& algorithm, const fs::path& out) const {
    return with(small_run(algorithm, out), {"--cluster", first_->address()});
  }
  // A job that goes on until something ends it; returns once it trains.
  std::unique_ptr<Process> endless_job(const fs::path& out,
                                       const std::vector<std::string>& more = {}) {
    auto process = std::make_unique<Process>(
        with(with(job("sgp", out), {"--steps", "1000000", "--checkpoint-every", "0.5"}), more),
        options());
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (!fs::exists(out / "checkpoint" / "latest") &&
           std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_TRUE(fs::exists(out / "checkpoint" / "latest")) << process->so_far().describe();
    return process;
  }
  std::string script(const std::string& name, const std::string& body) const {
    const fs::path path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
  static void expect_error(const ProcessResult& result, int code, const std::string& text) {
    EXPECT_EQ(result.exit_code, code) << result.describe();
    const std::string line = ProcessResult::last_line(result.err);
    EXPECT_EQ(line.rfind("error: ", 0), 0U) << result.describe();
    EXPECT_NE(line.find(text), std::string::npos) << text << result.describe();
  }

  TemporaryDirectory folder_;
  std::unique_ptr<RunningNode> first_;
  std::vector<std::unique_ptr<RunningNode>> others_;
};

TEST_F(Nodes, TrainAsOneProcessDoes) {
  start_nodes(3, 1);
  for (const std::string algorithm : {"ar", "sgp"}) {
    SCOPED_TRACE(algorithm);
    const fs::path many = folder_.path() / (algorithm + "-many");
    const fs::path one = folder_.path() / (algorithm + "-one");
    const auto together = run_process(job(algorithm, many), options());
    ASSERT_EQ(together.exit_code, 0) << together.describe();
    const json summary = summary_of(many);
    EXPECT_EQ(json::parse(ProcessResult::last_line(together.out)), summary);
    EXPECT_EQ(summary["workers"], 3);
    EXPECT_NE(together.err.find("outputs are on "), std::string::npos) << together.err;
    EXPECT_NE(together.err.find("in " + many.string()), std::string::npos) << together.err;

    const auto reference = run_here(with(small_run(algorithm, one), {"--workers", "3"}));
    ASSERT_EQ(reference.exit_code, 0) << reference.describe();
    const auto expected = read_checkpoint(one.string()), found = read_checkpoint(many.string());
    ASSERT_TRUE(expected.ok() && found.ok());
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(at::equal(*expected->ranks[rank].tensor("model.x"),
                            *found->ranks[rank].tensor("model.x")))
          << "rank " << rank;
  }
}

// The command line, the environment and a job file with a wiring all count on the nodes, and what
// the nodes have in their own environment does not.
TEST_F(Nodes, OptionsTravel) {
  first_ = std::make_unique<RunningNode>(std::vector<std::string>{"--slots", "4"},
                                         std::vector<std::string>{"GRAPEVINE_LR=0.7"});
  expect_state(1, 4, "idle");
  std::ofstream(folder_.path() / "job.toml")
      << "momentum = 0.5\nnesterov = true\nmodel = \"linear\"\n[wiring]\npeers = 2\n";
  const fs::path out = folder_.path() / "run";
  const auto result = run_process(
      {"train", (folder_.path() / "job.toml").string(), "--cluster", first_->address(), "--out",
       out.string(), "--processes", "3", "--model", "mlp", "--batch-size", "8", "--validate", "end",
       "--steps", "3"},
      options({"GRAPEVINE_SEED=7", "GRAPEVINE_EPOCHS=5", "GRAPEVINE_NETWORK_INTERFACE=mine0"}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const json summary = summary_of(out);
  EXPECT_EQ(summary["workers"], 3);
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_EQ(summary["seed"], 7);
  EXPECT_EQ(summary["model"], "mlp");
  std::ifstream file(out / "checkpoint" / "latest" / "job.json");
  const json saved = json::parse(file)["job"];
  EXPECT_EQ(saved["momentum"], "0.5");
  EXPECT_EQ(saved["nesterov"], "true");
  EXPECT_EQ(saved["wiring.peers"], "2");
  EXPECT_EQ(saved["lr"], "0.03");
  // The other way round: epochs of the command line count, not the environment's steps.
  const fs::path other = folder_.path() / "other";
  const auto epochs =
      run_process({"train", "--cluster", first_->address(), "--out", other.string(), "--model",
                   "mlp", "--batch-size", "64", "--validate", "end", "--epochs", "0.1"},
                  options({"GRAPEVINE_STEPS=77"}));
  ASSERT_EQ(epochs.exit_code, 0) << epochs.describe();
  EXPECT_NE(summary_of(other)["steps"], 77);
}

TEST_F(Nodes, ASignalStopsTheJobWithACheckpointAndASecondJobIsRefusedMeanwhile) {
  start_nodes(2, 1);
  const fs::path out = folder_.path() / "run";
  const auto running = endless_job(out);
  expect_error(run_process(job("ar", folder_.path() / "second"), options()), 1,
               "the nodes are busy with job 1");
  EXPECT_FALSE(fs::exists(folder_.path() / "second"));
  running->signal(SIGINT);
  const auto result = running->wait();
  expect_error(result, 4, "stopped by request; resume with --resume " + out.string());
  EXPECT_EQ(summary_of(out)["interrupted"], true);
  EXPECT_TRUE(read_checkpoint(out.string()).ok());
  const auto next = run_process(job("ar", folder_.path() / "next"), options());
  EXPECT_EQ(next.exit_code, 0) << next.describe();
}

// By the address of the first node, with nothing but the secret of the nodes, which is none here.
TEST_F(Nodes, TheirJobIsAskedAndChangedAtTheFirstNode) {
  start_nodes(2, 1);
  const auto control = [&](const std::string& target, const std::vector<std::string>& action) {
    return run_process(with({"control", target}, action), options({"GRAPEVINE_JOB_TOKEN"}));
  };
  expect_error(control(first_->address(), {"status"}), 2, "the nodes run no job now");
  expect_error(control(others_[0]->address(), {"status"}), 2, "give that address");
  const fs::path out = folder_.path() / "run";
  const auto process = endless_job(out);
  const auto status = control(first_->address(), {"status", "--json"});
  ASSERT_EQ(status.exit_code, 0) << status.describe();
  EXPECT_EQ(json::parse(status.out)["processes"], 2);
  const auto top =
      run_process({"top", first_->address(), "--once"}, options({"GRAPEVINE_JOB_TOKEN"}));
  EXPECT_EQ(top.exit_code, 0) << top.describe();
  EXPECT_NE(top.out.find("2 workers in 2 processes"), std::string::npos) << top.out;
  const auto stop = control(first_->address(), {"stop"});
  EXPECT_EQ(stop.exit_code, 0) << stop.describe();
  const auto ended = process->wait();
  EXPECT_EQ(ended.exit_code, 4) << ended.describe();
  expect_error(control(first_->address(), {"stop"}), 2, "the nodes run no job now");
}

TEST_F(Nodes, TheirJobIsForThoseWhoKnowTheSecret) {
  const std::string secret = "GRAPEVINE_CLUSTER_SECRET=0123456789abcdef";
  first_ = std::make_unique<RunningNode>(std::vector<std::string>{"--slots", "2"},
                                         std::vector<std::string>{secret});
  expect_state(1, 2, "idle");
  const fs::path out = folder_.path() / "run";
  Process process(with(job("sgp", out), {"--steps", "1000000"}), options({secret}));
  const auto ask = [&](const std::string& variable) {
    return run_process({"control", first_->address(), "status"},
                       options({"GRAPEVINE_JOB_TOKEN", variable}));
  };
  ASSERT_TRUE(process.wait_for_output("control: 127.0.0.1:")) << process.so_far().describe();
  const auto status = ask(secret);
  EXPECT_EQ(status.exit_code, 0) << status.describe();
  expect_error(ask("GRAPEVINE_CLUSTER_SECRET=0123456789abcdee"), 2, "the secret differs");
  expect_error(ask("GRAPEVINE_CLUSTER_SECRET"), 2, "the secret differs");
  process.signal(SIGTERM);
  process.wait();
}

// Nothing of it is sent.
TEST_F(Nodes, OptionsThatAreTooLongAreRefusedAtOnce) {
  start_nodes(1, 1);
  const auto refused = run_process(job("sgp", std::string(50'000, 'x')), options());
  expect_error(refused, 2, "and a job of nodes has at most 49152");
  EXPECT_EQ(first_->process().so_far().out.find("job 1"), std::string::npos);
}

TEST_F(Nodes, ASubmitterThatIsKilledStopsItsJob) {
  start_nodes(2, 1);
  const fs::path out = folder_.path() / "run";
  const auto running = endless_job(out);
  running->signal(SIGKILL);
  running->wait();
  EXPECT_TRUE(first_->process().wait_for_output("has ended"))
      << first_->process().so_far().describe();
  EXPECT_EQ(summary_of(out)["interrupted"], true);
}

// As the summary of many ranks, which --json prints.
// An upgrade beside a node that runs for months.
TEST_F(Nodes, StartTheFileThatHasReplacedTheirProgram) {
  const fs::path program = folder_.path() / "grapevine";
  fs::copy_file(GRAPEVINE_EXECUTABLE, program);
  first_ = std::make_unique<RunningNode>(std::vector<std::string>{"--slots", "1"},
                                         std::vector<std::string>{}, program.string());
  expect_state(1, 1, "idle");
  fs::rename(script("newer", "echo newer $1"), program);
  const ProcessResult result = run_process(job("sgp", folder_.path() / "run"), options());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "newer train\n") << result.describe();
}

// Three for each process, as with `launch`.
TEST_F(Nodes, TakeAsManyDescriptorsAsTheyMay) {
  const std::string limited =
      script("limited", "ulimit -S -n 64\nexec " + std::string(GRAPEVINE_EXECUTABLE) + " \"$@\"");
  first_ = std::make_unique<RunningNode>(
      std::vector<std::string>{"--slots", "30"},
      std::vector<std::string>{"GRAPEVINE_LAUNCH_PROGRAM=" + script("program", "ulimit -n")},
      limited);
  expect_state(1, 30, "idle");
  const ProcessResult result = run_process(job("sgp", folder_.path() / "run"), options());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "64\n") << result.describe();
}

// Ctrl-S in its terminal, a pager: its jobs and signals go on.
TEST_F(Nodes, AReaderThatStandsStillHoldsUpNoJob) {
  const auto port = reserve_tcp_port();
  ASSERT_TRUE(port.ok());
  const std::string address = "127.0.0.1:" + std::to_string(port->number);
  const std::string node =
      script("node",
             "mkfifo log; exec 3<> log\n"
             "dd if=/dev/zero of=log oflag=nonblock bs=4096 count=1000 2> full\n"
             "grep -q unavailable full || exit 9\n"
             "exec " +
                 std::string(GRAPEVINE_EXECUTABLE) + " node --listen " + address + " > log");
  ProcessOptions of_node =
      options({"LC_ALL=C", "GRAPEVINE_LAUNCH_PROGRAM=" + script("program", "echo done")}, node);
  of_node.directory = folder_.path();
  Process process(std::vector<std::string>{}, of_node);
  // Its slots come some time after its port.
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  ProcessResult result;
  do {
    result = run_process(with(small_run("sgp", folder_.path() / "run"), {"--cluster", address}),
                         options());
  } while (result.exit_code != 0 && std::chrono::steady_clock::now() < deadline);
  EXPECT_EQ(result.out, "done\n") << result.describe();
  process.signal(SIGTERM);
  expect_error(process.wait(), 1, "could not be written to stdout");
}

TEST_F(Nodes, ALongLineOfTheirJobArrivesAsOne) {
  const fs::path program = folder_.path() / "program";
  std::ofstream(program) << "#!/bin/sh\nhead -c 900000 /dev/zero | tr '\\0' x; echo end\n";
  fs::permissions(program, fs::perms::owner_all);
  first_ = std::make_unique<RunningNode>(
      std::vector<std::string>{"--slots", "1"},
      std::vector<std::string>{"GRAPEVINE_LAUNCH_PROGRAM=" + program.string()});
  expect_state(1, 1, "idle");
  const ProcessResult result = run_process(job("sgp", folder_.path() / "run"), options());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out == std::string(900'000, 'x') + "end\n")
      << result.out.size() << " bytes in " << std::count(result.out.begin(), result.out.end(), '\n')
      << " lines";
}

// The largest amount of memory that it has had, in bytes; 0 where that is not known.
std::size_t peak_memory(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6)) << 10;
  return 0;
}

// What its job says meanwhile is kept up to a bound; that the rest is missing, it is told later.
TEST_F(Nodes, ASubmitterThatIsSuspendedCostsTheFirstNodeLittle) {
  const int lines = 150;  // of 1 MB
  const fs::path program = folder_.path() / "program", go = folder_.path() / "go";
  std::ofstream(program) << "#!/bin/sh\necho started\n"
                         << "while [ ! -e " << go << " ]; do sleep 0.05; done\n"
                         << "i=0\nwhile [ $i -lt " << lines << " ]; do\n"
                         << "  head -c 1000000 /dev/zero | tr '\\0' x; echo\n"
                         << "  i=$((i + 1))\ndone\necho the end\n";
  fs::permissions(program, fs::perms::owner_all);
  first_ = std::make_unique<RunningNode>(
      std::vector<std::string>{"--slots", "1"},
      std::vector<std::string>{"GRAPEVINE_LAUNCH_PROGRAM=" + program.string()});
  expect_state(1, 1, "idle");
  Process submitter(job("sgp", folder_.path() / "run"), options());
  ASSERT_TRUE(submitter.wait_for_output("started")) << submitter.so_far().describe();
  submitter.signal(SIGSTOP);
  [[maybe_unused]] const std::size_t before = peak_memory(first_->process().pid());
  std::ofstream(go) << "";
  ASSERT_TRUE(first_->process().wait_for_output("has ended"))
      << first_->process().so_far().describe();
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed, for a while
  EXPECT_LT(peak_memory(first_->process().pid()), before + (std::size_t{64} << 20));
#endif
  submitter.signal(SIGCONT);
  const ProcessResult result = submitter.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ProcessResult::last_line(result.out), "the end");
  std::smatch note;
  ASSERT_TRUE(std::regex_search(result.err, note,
                                std::regex("cluster: ([0-9]+) lines are left out: they came")))
      << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n') + std::stol(note[1]), lines + 2);
}

// The other process would wait for it, for as long as --join-timeout.
TEST_F(Nodes, AProcessThatFailsBeforeTheRunHasBegunEndsTheJob) {
  const std::string body =
      "[ $RANK = 1 ] && [ ! -e '" + (folder_.path() / "failed").string() + "' ] && {\n" +
      "  touch '" + (folder_.path() / "failed").string() + "'\n" +
      "  case \"$*\" in *seed=7*) kill -KILL $$;; *) echo 'error: no memory' >&2; exit 1;; esac\n" +
      "}\nexec '" + std::string(GRAPEVINE_EXECUTABLE) + "' \"$@\"";
  first_ = std::make_unique<RunningNode>(
      std::vector<std::string>{"--slots", "2"},
      std::vector<std::string>{"GRAPEVINE_LAUNCH_PROGRAM=" + script("program", body)});
  expect_state(1, 2, "idle");
  const auto failed =
      run_process(with(job("sgp", folder_.path() / "run"), {"--join-timeout", "3600"}), options());
  expect_error(failed, 1, "process 1 on node " + first_->address() + ": no memory");
  // One that is killed is started again, and the run begins with it.
  fs::remove(folder_.path() / "failed");
  const auto again = run_process(
      with(job("sgp", folder_.path() / "again"), {"--join-timeout", "3600", "--seed", "7"}),
      options());
  EXPECT_EQ(again.exit_code, 0) << again.describe();
  EXPECT_NE(again.err.find("starting it again (1 of 3); the others wait"), std::string::npos)
      << again.err;
  EXPECT_EQ(again.err.find("have joined"), std::string::npos) << "the line is the node's";
}

// Killed with what it runs: another node takes the place, and the run ends with all its ranks.
TEST_F(Nodes, ANodeThatDiesLeavesItsPlaceToAnother) {
  start_nodes(3, 1);
  const fs::path out = folder_.path() / "run";
  const auto running = endless_job(out, {"--max-ranks", "4"});
  others_[1]->process().signal(SIGKILL);
  const std::string died = "cluster: node " + others_[1]->address() + " (";
  EXPECT_TRUE(running->wait_for_output(died)) << running->so_far().describe();
  EXPECT_NE(running->so_far().err.find("died during the job, with process 2: the others continue"),
            std::string::npos);
  EXPECT_NE(running->so_far().err.find("1 place is vacant: a node that joins the pool, 'grapevine "
                                       "node --join " +
                                       first_->address() + "', takes it"),
            std::string::npos)
      << running->so_far().err;
  add_node(2);
  for (const char* line : {"process 2 has joined again", "process 3 has joined"})
    EXPECT_TRUE(running->wait_for_output(line)) << running->so_far().describe();
  running->signal(SIGTERM);
  const auto stopped = running->wait();
  EXPECT_EQ(stopped.exit_code, 4) << stopped.describe();
  const json summary = summary_of(out);
  EXPECT_EQ(summary["joined_ranks"], 1);
  EXPECT_EQ(read_checkpoint(out.string())->ranks.size(), 4U);
  const auto next = run_process(job("ar", folder_.path() / "next"), options());
  EXPECT_EQ(next.exit_code, 0) << next.describe();
}

// A process that is killed joins the others again, and a node that leaves does not end the job.
TEST_F(Nodes, AJobOutlivesProcessesAndNodesThatLeave) {
  start_nodes(4, 1);
  const fs::path out = folder_.path() / "run";
  const auto running = endless_job(out);
  const std::string node_id = std::to_string(others_[0]->process().pid());
  pid_t rank = 0;
  std::ifstream("/proc/" + node_id + "/task/" + node_id + "/children") >> rank;
  ASSERT_GT(rank, 0);
  ASSERT_EQ(::kill(rank, SIGKILL), 0);
  EXPECT_TRUE(
      running->wait_for_output("was killed by signal 9 (SIGKILL): starting it again (1 of 3)"))
      << running->so_far().describe();
  EXPECT_TRUE(running->wait_for_output("process 1 has joined again"))
      << running->so_far().describe();
  others_[2]->process().signal(SIGTERM);
  const auto node = others_[2]->process().wait();
  EXPECT_EQ(node.exit_code, 0) << node.describe();
  EXPECT_TRUE(running->wait_for_output("has left the job, with process 3: the others continue"))
      << running->so_far().describe();
  EXPECT_TRUE(running->wait_for_output("rank 3 of process 3 is gone"))
      << running->so_far().describe();
  running->signal(SIGTERM);
  const auto stopped = running->wait();
  EXPECT_EQ(stopped.exit_code, 4) << stopped.describe();
  EXPECT_EQ(summary_of(out)["lost_ranks"], json::array({3}));
}

TEST_F(Nodes, ANodeThatDiesEndsTheJobThatIsToStopAndIsNamed) {
  start_nodes(3, 1);
  const fs::path out = folder_.path() / "run";
  const auto running = endless_job(out, {"--on-failure", "stop"});
  others_[1]->process().signal(SIGKILL);
  expect_error(running->wait(), 3, "node " + others_[1]->address() + " (");
  expect_error(running->so_far(), 3, "; resume with --resume " + out.string());
  EXPECT_EQ(running->so_far().err.find("still not closed"), std::string::npos);
  EXPECT_NE(ProcessResult::last_line(running->so_far().err).find("died during the job"),
            std::string::npos);
  expect_state(2, 2, "idle");
  const auto next = run_process(job("ar", folder_.path() / "next"), options());
  EXPECT_EQ(next.exit_code, 0) << next.describe();
}

TEST_F(Nodes, ANodeThatFallsSilentCountsAsDead) {
  first_ = std::make_unique<RunningNode>(std::vector<std::string>{"--timeout", "10"});
  add_node(1);
  expect_state(2, 2, "idle");
  others_[0]->process().signal(SIGSTOP);
  ASSERT_TRUE(first_->process().wait_for_output("is gone\n1 node, 1 slot, idle"))
      << first_->process().so_far().describe();
  others_[0]->process().signal(SIGCONT);
  expect_error(others_[0]->process().wait(), 3, "the first node at " + first_->address());
}

TEST_F(Nodes, LeaveCleanlyWhenAskedTo) {
  start_nodes(2, 1);
  const fs::path out = folder_.path() / "run";
  const auto running = endless_job(out);
  others_[0]->process().signal(SIGTERM);
  const auto node = others_[0]->process().wait();
  EXPECT_EQ(node.exit_code, 0) << node.describe();
  const auto job = running->wait();
  EXPECT_EQ(job.exit_code, 4) << job.describe();
  EXPECT_EQ(summary_of(out)["interrupted"], true);
  EXPECT_TRUE(read_checkpoint(out.string()).ok());
  expect_state(1, 1, "idle");
  first_->process().signal(SIGTERM);
  EXPECT_EQ(first_->process().wait().exit_code, 0);
}

TEST_F(Nodes, TheFirstOneThatDiesIsNamedToAll) {
  start_nodes(2, 1);
  const auto running = endless_job(folder_.path() / "run");
  first_->process().signal(SIGKILL);
  expect_error(running->wait(), 3, "the first node at " + first_->address());
  expect_error(others_[0]->process().wait(), 3, "the first node at " + first_->address());
}

// Another node, which is stopped, keeps the other ends of its connections.
TEST_F(Nodes, AFirstOneThatWasKilledStartsAgainOnItsPort) {
  const std::string certificates = cluster_test::made_certificates(folder_.path() / "tls");
  const std::vector<std::vector<std::string>> kinds = {{}, {"--tls", certificates}};
  for (const std::vector<std::string>& kind : kinds) {
    SCOPED_TRACE(kind.empty() ? "without TLS" : "with TLS");
    first_ = std::make_unique<RunningNode>(kind);
    const std::string address = first_->address(), joined = "joined " + address;
    RunningNode living(with({"--join", address}, kind));
    ASSERT_TRUE(living.process().wait_for_output(joined)) << living.process().so_far().describe();
    living.process().signal(SIGSTOP);
    first_->process().signal(SIGKILL);
    first_->process().wait();
    first_ = std::make_unique<RunningNode>(with({"--listen", address}, kind));
    EXPECT_EQ(first_->address(), address) << first_->process().so_far().describe();
    RunningNode next(with({"--join", address}, kind));
    EXPECT_TRUE(next.process().wait_for_output(joined)) << next.process().so_far().describe();
    living.process().signal(SIGCONT);
    expect_error(living.process().wait(), 3, "the first node at " + address);
  }
}

// The data of a job is there where its nodes are; who cannot read it is named.
// Also where no variable says who it is, as in a service or a container.
TEST_F(Nodes, NameTheUserAndTheRankThatTheyStart) {
  start_nodes(2, 1);
  const auto done = run_process(job("sgp", folder_.path() / "run"), options({"USER"}));
  ASSERT_EQ(done.exit_code, 0) << done.describe();
  const passwd* user = ::getpwuid(::getuid());
  const std::string name = user != nullptr ? user->pw_name : "user " + std::to_string(::getuid());
  EXPECT_TRUE(first_->process().wait_for_output("job 1 of " + name + "@"))
      << first_->process().so_far().describe();
  EXPECT_TRUE(others_[0]->process().wait_for_output("job 1: starting process 1 of 2"))
      << others_[0]->process().so_far().describe();
}

TEST_F(Nodes, BadInputIsSaidOnce) {
  start_nodes(2, 1);
  const fs::path out = folder_.path() / "run";
  const auto nowhere = run_process(with(job("sgp", out), {"--data", "mnist:/nowhere"}), options());
  expect_error(nowhere, 2, "/nowhere");
  EXPECT_EQ(nowhere.err.find("error: "), nowhere.err.rfind("error: ")) << nowhere.describe();
  for (const auto& [wrong, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--lr-schedule", "sideways"}, "sideways"},
           {{"--algorithm", "sgpp"}, "sgp"},
           {{"--lr", "nan"}, "--lr nan"},
           {{"--momentum", "1"}, "--momentum 1"},
           {{"--weight-decay", "-1"}, "--weight-decay -1"},
           {{"--precision", "fp8"}, "fp16"},
           {{"--peers", "cloud"}, "device"},
           {{"--batch-size", "0"}, "--batch-size 0"},
           {{"--data", "glyfs"}, "glyphs"},
           {{"--transport", "inproc"}, "inproc"},
           {{"--processes", "3"}, "the nodes have 2 slots"},
           {{"--processes", "-1"}, "--processes -1"},
           {{"--requeue-command", "true"}, "--requeue-command"},
           {{"--cluster", "127.0.0.1"}, "--cluster '127.0.0.1': expected HOST:PORT"},
           {{"--cluster", "127.0.0.1:99999"}, "expected HOST:PORT"}})
    expect_error(run_here(with(job("sgp", out), wrong)), 2, text);
  EXPECT_FALSE(fs::exists(out));
  expect_error(run_process(with(job("sgp", out), {"--cluster", others_[0]->address()}), options()),
               2, "belongs to the nodes of " + first_->address());
}

TEST_F(Nodes, GarbageOnThePortDoesNoHarm) {
  start_nodes(1, 1);
  const auto port = static_cast<std::uint16_t>(
      std::stoi(first_->address().substr(first_->address().rfind(':') + 1)));
  std::uint32_t state = 12345;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    std::string bytes = attempt == 0 ? "GET / HTTP/1.1\r\n\r\n" : "";
    while (attempt > 0 && bytes.size() < 4096) {
      state = state * 1664525 + 1013904223;
      bytes.push_back(static_cast<char>(state >> 24));
    }
    ::send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::close(client);
  }
  const auto result = run_process(job("ar", folder_.path() / "run"), options());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

// ---- secrets ----

TEST_F(Nodes, OnlyWhoKnowsTheSecretGetsIn) {
  const std::string file = (folder_.path() / "secret").string();
  std::ofstream(file) << "correct horse\n";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  first_ = std::make_unique<RunningNode>(std::vector<std::string>{"--secret-file", file});
  ASSERT_NE(first_->address(), "");
  const fs::path out = folder_.path() / "run";
  for (const std::vector<std::string>& environment :
       {std::vector<std::string>{}, {"GRAPEVINE_CLUSTER_SECRET=wrong"}}) {
    expect_error(run_process(job("ar", out), options(environment)), 2, "the secret differs");
    expect_error(run_process({"node", "--listen", "127.0.0.1:0", "--join", first_->address()},
                             options(environment)),
                 2, "the secret differs");
  }
  EXPECT_FALSE(fs::exists(out));
  const auto result = run_process(with(job("ar", out), {"--secret-file", file}), options());
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const auto other = run_process(with(job("ar", out), {"--overwrite"}),
                                 options({"GRAPEVINE_CLUSTER_SECRET=correct horse"}));
  EXPECT_EQ(other.exit_code, 0) << other.describe();
}

// Neither to a node nor to what listens in a node's place: whoever listens learns no secret.
TEST_F(Nodes, TheSecretIsSentToNobody) {
  const std::string secret = "correct horse battery staple";
  const std::string own = "GRAPEVINE_CLUSTER_SECRET=" + secret;
  first_ = std::make_unique<RunningNode>(std::vector<std::string>{}, std::vector<std::string>{own});
  ASSERT_NE(first_->address(), "");
  const std::string port = first_->address().substr(first_->address().rfind(':') + 1);
  Relay relay(static_cast<std::uint16_t>(std::stoi(port)));
  const std::vector<std::string> arguments =
      with(small_run("ar", folder_.path() / "run"), {"--cluster", relay.address()});
  const auto done = run_process(arguments, options({own}));
  EXPECT_EQ(done.exit_code, 0) << done.describe();
  EXPECT_EQ(run_process(arguments, options({"GRAPEVINE_CLUSTER_SECRET=another horse"})).exit_code,
            2);
  const std::string seen = relay.seen();
  EXPECT_GT(seen.size(), 1000U) << "the job did not come this way";
  EXPECT_NE(seen.find("--algorithm"), std::string::npos) << "its options did not come this way";
  for (const std::string& part : {secret, std::string("horse")})
    EXPECT_EQ(seen.find(part), std::string::npos) << part;
}

// Where the first node listens on all interfaces, the others may know it by different addresses.
TEST_F(Nodes, TheFirstOneIsReachedAtEachOfItsAddresses) {
  const std::string file = (folder_.path() / "secret").string();
  std::ofstream(file) << "correct horse battery\n";
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  const std::vector<std::string> secret = {"--secret-file", file};
  first_ = std::make_unique<RunningNode>(with({"--listen", "0.0.0.0:0"}, secret));
  ASSERT_NE(first_->address(), "") << first_->process().so_far().describe();
  const std::string port = first_->address().substr(first_->address().rfind(':'));
  for (const std::string host : {"127.0.0.5", "127.0.0.6"}) {
    others_.push_back(std::make_unique<RunningNode>(
        with({"--listen", "127.0.0.2:0", "--join", host + port}, secret)));
    ASSERT_TRUE(others_.back()->process().wait_for_output("joined " + host + port))
        << others_.back()->process().so_far().describe();
  }
  const auto done = run_process(
      with(with(small_run("ar", folder_.path() / "run"), secret),
           {"--cluster", "127.0.0.1" + port, "--transport", "tcp", "--join-timeout", "20"}),
      options());
  EXPECT_EQ(done.exit_code, 0) << done.describe();
  EXPECT_EQ(summary_of(folder_.path() / "run")["workers"], 3);
}

TEST(NodeErrors, OnlyLoopbackIsLoopback) {
  for (const std::string host : {"localhost", "127.0.0.1", "127.200.3.4", "::1"})
    EXPECT_TRUE(is_loopback_host(host)) << host;
  for (const std::string host : {"127.example.org", "127.0.0.1.example.org", "127.1", "127.", "",
                                 "128.0.0.1", "::", "0.0.0.0", "localhost.example.org"})
    EXPECT_FALSE(is_loopback_host(host)) << host;
}

TEST(NodeErrors, WithoutASecretItSaysWhoMayRunJobs) {
  RunningNode node({});
  EXPECT_TRUE(node.process().wait_for_output("every user of this machine"))
      << node.process().so_far().describe();
}

TEST(NodeErrors, EveryMistakeIsOneLine) {
  const TemporaryDirectory folder;
  const std::string empty = (folder.path() / "empty").string();
  const std::ofstream created(empty);
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{}, "--listen is missing"},
      {{"--listen", "here"}, "--listen 'here': expected HOST:PORT"},
      {{"--listen", "127.0.0.1:65536"}, "expected HOST:PORT"},
      {{"--listen", "127.0.0.1:7x"}, "expected HOST:PORT"},
      {{"--listen", "127.0.0.1:0", "--join", "127.0.0.1:0"}, "--join '127.0.0.1:0'"},
      {{"--listen", "127.0.0.1.example.org:0"}, "every user who reaches that port could run jobs"},
      {{"--listen", "0.0.0.0:0"}, "every user who reaches that port could run jobs here"},
      {{"--listen", "127.0.0.1:0", "--slots", "0"}, "--slots 0: expected 1.."},
      {{"--listen", "127.0.0.1:0", "--timeout", "0.1"}, "--timeout 0.1"},
      {{"--listen", "127.0.0.1:0", "--join-timeout", "-1"}, "--join-timeout -1"},
      {{"--listen", "127.0.0.1:0", "--secret-file", empty}, "is empty"},
      {{"--listen", "127.0.0.1:0", "--secret-file", folder.path().string()}, "cannot be read"}};
  for (const auto& [arguments, text] : cases) {
    const auto result = run_here(with({"node"}, arguments));
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_NE(ProcessResult::last_line(result.err).find(text), std::string::npos)
        << text << result.describe();
  }
}

TEST(NodeErrors, NobodyAndSomebodyElseAtTheAddress) {
  const RunningNode node({});
  const auto busy = run_process({"node", "--listen", node.address()}, options());
  EXPECT_EQ(busy.exit_code, 1) << busy.describe();
  EXPECT_NE(busy.err.find("cannot listen on " + node.address() + ": Address already in use"),
            std::string::npos)
      << busy.err;
  const auto nobody = run_process(
      {"node", "--listen", "127.0.0.1:0", "--join", "127.0.0.1:1", "--join-timeout", "2"},
      options());
  EXPECT_EQ(nobody.exit_code, 1) << nobody.describe();
  EXPECT_NE(nobody.err.find("cannot reach the first node at 127.0.0.1:1"), std::string::npos);

  // Accepts, and says nothing.
  const int silent = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(silent, 8), 0);
  ::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string where = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const auto mute = run_process({"train", "--cluster", where, "--join-timeout", "2"}, options());
  ::close(silent);
  EXPECT_EQ(mute.exit_code, 1) << mute.describe();
  EXPECT_NE(ProcessResult::last_line(mute.err).find("cannot reach the first node at " + where),
            std::string::npos)
      << mute.describe();
}

// A signal ends what waits for a first node, at once.
TEST(NodeErrors, ASignalEndsTheWaitingForAFirstNode) {
  Process node(
      {"node", "--listen", "127.0.0.1:0", "--join", "127.0.0.1:1", "--join-timeout", "1000"},
      options());
  ASSERT_TRUE(node.wait_for_output("listening"));
  node.signal(SIGTERM);
  EXPECT_EQ(node.wait().exit_code, 0) << node.so_far().describe();
}

}  // namespace node_test
}  // namespace grapevine
