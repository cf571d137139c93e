// What launchers say of a process, and what they might say.
#include "apps/launched/launcher_environment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace grapevine {
namespace launcher_environment_test {

using Environment = std::map<std::string, std::string>;

Expected<std::optional<LaunchedProcess>> read(const Environment& environment) {
  return read_launcher_environment([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

Environment with(Environment base, const Environment& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

Environment without(Environment base, const std::string& name) {
  base.erase(name);
  return base;
}

const Environment kTorchrun = {{"RANK", "5"},           {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "head"}, {"MASTER_PORT", "29400"}};
const Environment kSlurm = {{"SLURM_PROCID", "6"},
                            {"SLURM_NTASKS", "8"},
                            {"SLURM_LOCALID", "2"},
                            {"SLURM_NTASKS_PER_NODE", "4"},
                            {"SLURM_STEP_NODELIST", "node[003-007,12]"},
                            {"SLURM_JOB_ID", "4711"}};
const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"MASTER_ADDR", "10.0.0.1"},         {"MASTER_PORT", "5000"}};
const Environment kPmi = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};

struct Wanted {
  std::int32_t process, processes, local_process, local_processes;
  std::string host;
  int port;  // -1: any, but one
  std::string launcher;
};

struct Case {
  std::string what;
  Environment environment;
  Wanted wanted;
};

TEST(LauncherEnvironment, ReadsEveryLauncher) {
  const std::vector<Case> cases = {
      {"torchrun", kTorchrun, {5, 8, 1, 4, "head", 29400, "torchrun"}},
      {"torchrun wins",
       with(with(kTorchrun, kSlurm), with(kOpenMpi, {{"MASTER_ADDR", "m"}})),
       {5, 8, 1, 4, "m", 5000, "torchrun"}},
      {"four variables typed by hand, one machine",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}},
       {1, 2, 1, 2, "localhost", 1, "torchrun"}},
      {"four variables typed by hand, several machines",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "fe80::1%eth0"}, {"MASTER_PORT", "1"}},
       {1, 2, 0, 1, "fe80::1%eth0", 1, "torchrun"}},
      {"an address in brackets",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "[::1]"}, {"MASTER_PORT", "1"}},
       {1, 2, 1, 2, "::1", 1, "torchrun"}},
      {"a job of one needs no head",
       {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
       {0, 1, 0, 1, "127.0.0.1", 0, "torchrun"}},
      {"slurm", kSlurm, {6, 8, 2, 4, "node003", -1, "SLURM"}},
      {"slurm, the port said",
       with(kSlurm, {{"MASTER_PORT", "7000"}}),
       {6, 8, 2, 4, "node003", 7000, "SLURM"}},
      {"slurm, the head said",
       with(kSlurm, {{"MASTER_ADDR", "ib3"}}),
       {6, 8, 2, 4, "ib3", -1, "SLURM"}},
      {"slurm, the job's list",
       with(without(kSlurm, "SLURM_STEP_NODELIST"), {{"SLURM_JOB_NODELIST", "a-1,b-2"}}),
       {6, 8, 2, 4, "a-1", -1, "SLURM"}},
      {"slurm, uneven nodes",
       with(without(kSlurm, "SLURM_NTASKS_PER_NODE"),
            {{"SLURM_STEP_TASKS_PER_NODE", "2(x2),4"}, {"SLURM_NODEID", "2"}}),
       {6, 8, 2, 4, "node003", -1, "SLURM"}},
      {"slurm, one node: on loopback no other machine reaches the job",
       with(without(kSlurm, "SLURM_NTASKS_PER_NODE"),
            {{"SLURM_STEP_TASKS_PER_NODE", "8"}, {"SLURM_NODEID", "0"}}),
       {6, 8, 2, 8, "127.0.0.1", -1, "SLURM"}},
      {"slurm, one node, the head said",
       with(
           kSlurm,
           {{"SLURM_STEP_TASKS_PER_NODE", "8"}, {"SLURM_NODEID", "0"}, {"MASTER_ADDR", "node003"}}),
       {6, 8, 2, 8, "node003", -1, "SLURM"}},
      {"slurm, perhaps one node: only a bound of its tasks is known",
       with(kSlurm, {{"SLURM_NTASKS_PER_NODE", "8"}}),
       {6, 8, 2, 8, "node003", -1, "SLURM"}},
      {"open mpi", kOpenMpi, {3, 4, 1, 2, "10.0.0.1", 5000, "Open MPI"}},
      {"open mpi inside slurm: srun has started its daemons",
       with(kSlurm, kOpenMpi),
       {3, 4, 1, 2, "10.0.0.1", 5000, "Open MPI"}},
      {"open mpi on one machine",
       with(without(kOpenMpi, "MASTER_ADDR"),
            {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
       {3, 4, 3, 4, "127.0.0.1", 5000, "Open MPI"}},
      {"open mpi 4 says where mpirun is",
       with(without(kOpenMpi, "MASTER_ADDR"),
            {{"OMPI_MCA_orte_hnp_uri", "12345.0;tcp://10.1.2.3,192.168.0.2:45678"}}),
       {3, 4, 1, 2, "10.1.2.3", 5000, "Open MPI"}},
      {"pmi", kPmi, {1, 2, 1, 2, "127.0.0.1", -1, "PMI"}},
      {"hydra inside slurm", with(kSlurm, kPmi), {1, 2, 1, 2, "127.0.0.1", -1, "PMI"}},
      {"srun --mpi=pmi2",
       with(kSlurm, {{"PMI_RANK", "6"}, {"PMI_SIZE", "8"}}),
       {6, 8, 2, 4, "node003", -1, "SLURM"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const auto result = read(c.environment);
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_TRUE(result.value().has_value());
    const LaunchedProcess& got = **result;
    EXPECT_EQ(got.process, c.wanted.process);
    EXPECT_EQ(got.processes, c.wanted.processes);
    EXPECT_EQ(got.local_process, c.wanted.local_process);
    EXPECT_EQ(got.local_processes, c.wanted.local_processes);
    EXPECT_EQ(got.head_host, c.wanted.host);
    EXPECT_EQ(got.launcher, c.wanted.launcher);
    if (c.wanted.port >= 0) {
      EXPECT_EQ(got.head_port, c.wanted.port);
    } else {
      EXPECT_GT(got.head_port, 1023);
    }
  }
}

TEST(LauncherEnvironment, NothingWhereNoLauncherSpeaks) {
  const std::vector<Environment> cases = {
      {},
      {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "1"}, {"LOCAL_RANK", "0"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_NODELIST", "n1"}},
      {{"SLURM_PROCID", "0"}, {"SLURM_JOB_NODELIST", "n1"}},  // a batch script without --ntasks
      {{"SLURM_NTASKS", "4"}, {"SLURM_JOB_NODELIST", "n1"}},  // a shell of salloc
      {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}};
  for (const Environment& environment : cases) {
    const auto result = read(environment);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_FALSE(result.value().has_value());
  }
}

TEST(LauncherEnvironment, FirstHostOfEveryNodeList) {
  const std::map<std::string, std::string> cases = {{"node1", "node1"},
                                                    {"node1,node2", "node1"},
                                                    {"node[003-007,12]", "node003"},
                                                    {"node[12]", "node12"},
                                                    {"node[5,1-2],other", "node5"},
                                                    {"rack[0-1]n[02-03].site,x", "rack0n02.site"},
                                                    {"a-b-[1-2]", "a-b-1"},
                                                    {"10.0.0.[7-9]", "10.0.0.7"}};
  for (const auto& [list, host] : cases) {
    const auto result = read(with(kSlurm, {{"SLURM_STEP_NODELIST", list}}));
    ASSERT_TRUE(result.ok()) << list << ": " << result.error().message;
    EXPECT_EQ((*result)->head_host, host) << list;
  }
  for (const std::string list : {"", ",", "node[", "node[]", "node[1", "node[1-", "node[1-]",
                                 "node[1,]", "node[a]", "[", "]", "no de", "node[1-2", "a]b"}) {
    const auto result = read(with(kSlurm, {{"SLURM_STEP_NODELIST", list}}));
    ASSERT_FALSE(result.ok()) << list;
    EXPECT_NE(result.error().message.find("SLURM_STEP_NODELIST"), std::string::npos);
  }
}

// Ports are equal for all tasks of a job, and differ between jobs and steps side by side.
TEST(LauncherEnvironment, SlurmPortsFollowTheJob) {
  const auto port = [](const Environment& more) {
    const auto result = read(with(kSlurm, more));
    EXPECT_TRUE(result.ok());
    return (*result)->head_port;
  };
  EXPECT_EQ(port({{"SLURM_PROCID", "1"}}), port({{"SLURM_PROCID", "7"}}));
  EXPECT_NE(port({{"SLURM_JOB_ID", "1"}}), port({{"SLURM_JOB_ID", "2"}}));
  EXPECT_NE(port({{"SLURM_STEP_ID", "0"}}), port({{"SLURM_STEP_ID", "1"}}));
}

struct BadCase {
  Environment environment;
  std::string variable;  // that the message must name
};

TEST(LauncherEnvironment, ErrorsNameTheVariable) {
  const Environment far = without(without(kOpenMpi, "MASTER_ADDR"), "MASTER_PORT");
  const std::vector<BadCase> cases = {
      {{{"RANK", "0"}}, "WORLD_SIZE"},
      {{{"WORLD_SIZE", "2"}}, "RANK"},
      {with(kTorchrun, {{"RANK", "x"}}), "RANK='x'"},
      {with(kTorchrun, {{"RANK", ""}}), "RANK=''"},
      {with(kTorchrun, {{"RANK", "8"}}), "RANK='8'"},
      {with(kTorchrun, {{"RANK", "-1"}}), "RANK='-1'"},
      {with(kTorchrun, {{"RANK", "1 "}}), "RANK='1 '"},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "WORLD_SIZE='0'"},
      {with(kTorchrun, {{"WORLD_SIZE", "99999999999999999999"}}), "WORLD_SIZE="},
      {with(kTorchrun, {{"LOCAL_RANK", "4"}}), "LOCAL_RANK='4'"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}), "LOCAL_WORLD_SIZE='9'"},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT='65536'"},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT='0'"},
      {with(kTorchrun, {{"MASTER_ADDR", "a b"}}), "MASTER_ADDR='a b'"},
      {with(kTorchrun, {{"MASTER_ADDR", "a\nb"}}), "MASTER_ADDR='a?b'"},
      {with(kTorchrun, {{"MASTER_ADDR", "[]"}}), "MASTER_ADDR='[]'"},
      {with(kTorchrun, {{"MASTER_ADDR", "[::1"}}), "MASTER_ADDR='[::1'"},
      {with(kTorchrun, {{"MASTER_ADDR", "::1]"}}), "MASTER_ADDR='::1]'"},
      {with(kTorchrun, {{"MASTER_ADDR", "[[::1]]"}}), "MASTER_ADDR='[[::1]]'"},
      {without(kTorchrun, "MASTER_ADDR"), "MASTER_ADDR"},
      {without(kTorchrun, "MASTER_PORT"), "MASTER_PORT"},
      {without(kTorchrun, "LOCAL_RANK"), "LOCAL_RANK"},
      {without(kSlurm, "SLURM_NTASKS"), "SLURM_NTASKS"},
      {without(kSlurm, "SLURM_LOCALID"), "SLURM_LOCALID"},
      {without(kSlurm, "SLURM_NTASKS_PER_NODE"), "SLURM_NTASKS_PER_NODE"},
      {without(kSlurm, "SLURM_STEP_NODELIST"), "SLURM_JOB_NODELIST"},
      {without(kSlurm, "SLURM_JOB_ID"), "SLURM_JOB_ID"},
      {with(kSlurm, {{"SLURM_PROCID", "8"}}), "SLURM_PROCID='8'"},
      {with(kSlurm, {{"SLURM_NODEID", "1"}, {"SLURM_TASKS_PER_NODE", "4"}}),
       "SLURM_TASKS_PER_NODE='4'"},
      {with(kSlurm, {{"SLURM_NODEID", "0"}, {"SLURM_TASKS_PER_NODE", "4(x"}}),
       "SLURM_TASKS_PER_NODE"},
      {far, "set MASTER_ADDR"},
      {with(far, {{"OMPI_MCA_orte_hnp_uri", "1.0;tcp://127.0.0.1:5"}}), "set MASTER_ADDR"},
      {with(far, {{"OMPI_MCA_orte_hnp_uri", "1.0;usock"}}), "set MASTER_ADDR"},
      {without(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE"), "OMPI_COMM_WORLD_LOCAL_SIZE"},
      {without(kPmi, "MPI_LOCALRANKID"), "MPI_LOCALRANKID"},
      {with(kPmi, {{"MPI_LOCALNRANKS", "1"}, {"MPI_LOCALRANKID", "0"}}), "set MASTER_ADDR"}};
  for (const BadCase& c : cases) {
    const auto result = read(c.environment);
    ASSERT_FALSE(result.ok()) << c.variable;
    EXPECT_EQ(result.error().code, Errc::bad_input);
    EXPECT_NE(result.error().message.find(c.variable), std::string::npos)
        << "wanted " << c.variable << " in: " << result.error().message;
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  }
}

// What a message says is set, is set.
TEST(LauncherEnvironment, MissingVariablesAreNotSaidToBeSet) {
  const std::vector<std::pair<Environment, std::string>> cases = {
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}},
       "neither SLURM_STEP_TASKS_PER_NODE nor SLURM_NTASKS_PER_NODE is set, but SLURM_PROCID is: "
       "start the process with srun, which sets them"},
      {{{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_NTASKS_PER_NODE", "4"}},
       "SLURM_LOCALID is not set, but SLURM_PROCID is: set both"},
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       "OMPI_COMM_WORLD_LOCAL_SIZE is not set, but OMPI_COMM_WORLD_RANK is: set both"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}},
       "MPI_LOCALNRANKS is not set, but PMI_RANK is: set both"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}},
       "MPI_LOCALNRANKS is not set, but MPI_LOCALRANKID is: set both"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}},
       "MASTER_PORT is not set, but RANK is: set it as in process 0"}};
  for (const auto& [environment, message] : cases) {
    const auto result = read(environment);
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_EQ(result.error().message, message);
  }
}

TEST(LauncherEnvironment, AJobOfOneNeedsNoPlace) {
  for (const Environment& environment :
       {Environment{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
        Environment{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}}) {
    const auto result = read(environment);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ((*result)->processes, 1);
    EXPECT_EQ((*result)->local_processes, 1);
  }
}

TEST(LauncherEnvironment, SaysHowManyProcessesThereMayBe) {
  const auto result = read(with(kTorchrun, {{"WORLD_SIZE", "4097"}}));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message, "WORLD_SIZE='4097': expected a number, 1..4096");
}

// Whatever the variables hold: an error about one of them, nothing, or a process inside its job.
TEST(LauncherEnvironment, AnyVariablesGiveAnErrorOrAProcessInsideItsJob) {
  const std::vector<std::string> names = {"RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS",
                                          "SLURM_LOCALID",
                                          "SLURM_NTASKS_PER_NODE",
                                          "SLURM_NODEID",
                                          "SLURM_STEP_TASKS_PER_NODE",
                                          "SLURM_TASKS_PER_NODE",
                                          "SLURM_STEP_NODELIST",
                                          "SLURM_JOB_NODELIST",
                                          "SLURM_JOB_ID",
                                          "SLURM_STEP_ID",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                                          "OMPI_MCA_orte_hnp_uri",
                                          "PMIX_NAMESPACE",
                                          "PMI_RANK",
                                          "PMI_SIZE",
                                          "MPI_LOCALRANKID",
                                          "MPI_LOCALNRANKS"};
  const std::vector<std::string> pieces = {
      "0", "1", "2", "3",  "4",  "9",    "07",         "-",
      ",", "[", "]", "(x", ")",  "node", "n1",         "tcp://",
      ";", ".", ":", " ",  "\n", "\xff", "2147483648", "99999999999999999999",
      ""};
  const std::uint32_t seed = 20240611;
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  int processes = 0;
  int errors = 0;
  for (int round = 0; round < 20000; ++round) {
    // A launcher's own variables often, so that the deep parts are reached too.
    const std::vector<Environment> starts = {{}, kTorchrun, kSlurm, kOpenMpi, kPmi};
    Environment environment = starts[below(starts.size())];
    for (std::size_t change = below(5); change > 0; --change) {
      const std::string& name = names[below(names.size())];
      std::string value;
      for (std::size_t piece = below(4); piece > 0; --piece) value += pieces[below(pieces.size())];
      if (below(4) == 0) {
        environment.erase(name);
      } else {
        environment[name] = value;
      }
    }
    std::string all;
    for (const auto& [name, value] : environment) all += " " + name + "=" + value;
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round) + ":" + all);
    const auto result = read(environment);
    if (!result) {
      ++errors;
      EXPECT_EQ(result.error().code, Errc::bad_input);
      EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const std::string& name) {
        return result.error().message.find(name) != std::string::npos;
      })) << result.error().message;
      EXPECT_TRUE(std::none_of(result.error().message.begin(), result.error().message.end(),
                               [](char c) { return c == '\n'; }));
    } else if (result.value()) {
      ++processes;
      const LaunchedProcess& got = **result;
      EXPECT_GE(got.process, 0);
      EXPECT_LT(got.process, got.processes);
      EXPECT_GE(got.local_process, 0);
      EXPECT_LT(got.local_process, got.local_processes);
      EXPECT_LE(got.local_processes, got.processes);
      EXPECT_FALSE(got.head_host.empty());
      EXPECT_FALSE(got.launcher.empty());
      EXPECT_TRUE(got.processes == 1 || got.head_port > 0);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(processes, 1000);
  EXPECT_GT(errors, 1000);
}

// torchrun's agent listens on MASTER_PORT itself.
TEST(LauncherEnvironment, ThePortBehindTorchrunsOwn) {
  const Environment agent =
      with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}, {"TORCHELASTIC_RESTART_COUNT", "0"}});
  for (const auto& [given, used] : std::map<std::string, int>{{"29400", 29401}, {"65535", 65534}}) {
    const auto process = read(with(agent, {{"MASTER_PORT", given}}));
    ASSERT_TRUE(process.ok() && *process) << given;
    EXPECT_EQ((*process)->head_port, used);
  }
  EXPECT_EQ((*read(kTorchrun))->head_port, 29400) << "the variables by hand";
}

// Where nothing says so, the other processes outlive one that ends.
TEST(LauncherEnvironment, SomeLaunchersEndTheJobWithAnyProcess) {
  const auto ends = [](const Environment& environment) {
    const auto launched = read(environment);
    return launched && *launched && (*launched)->ends_with_any_process;
  };
  EXPECT_FALSE(ends(kTorchrun));
  EXPECT_TRUE(ends(with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}})));
  EXPECT_TRUE(ends(with(kTorchrun, {{kLossEndsJobVariable, "1"}})));
  EXPECT_FALSE(ends(kSlurm));
  EXPECT_FALSE(ends(with(kSlurm, {{"SLURM_KILL_BAD_EXIT", "0"}})));
  EXPECT_TRUE(ends(with(kSlurm, {{"SLURM_KILL_BAD_EXIT", "1"}})));
  EXPECT_TRUE(ends(kOpenMpi));
  EXPECT_FALSE(ends({{kLossEndsJobVariable, "1"}})) << "no launcher speaks";
}

}  // namespace launcher_environment_test
}  // namespace grapevine
