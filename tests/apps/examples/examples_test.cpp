// The files of apps/examples/cluster and the commands of docs/cluster.md: they parse, their scripts
// start what they say, and every option that they use exists.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <tuple>

#include "apps/launch/launch_plan.hpp"
#include "messages/text/shell_quoted.hpp"
#include "tests/apps/process.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace examples_test {

namespace fs = std::filesystem;

const fs::path kExamples = fs::path(GRAPEVINE_SOURCE_DIR) / "apps" / "examples" / "cluster";

ProcessOptions program(const std::string& path) {
  ProcessOptions options;
  options.program = path;
  return options;
}

ProcessResult shell(const std::string& command) {
  return run_process({"-c", command}, program("/bin/sh"));
}

bool present(const std::string& command) { return shell("command -v " + command).exit_code == 0; }

std::vector<fs::path> examples() {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(kExamples)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_shell(const fs::path& path) {
  return path.extension() == ".sh" || path.extension() == ".sbatch";
}

TEST(ClusterExamples, ShellScriptsParse) {
  int scripts = 0;
  for (const fs::path& path : examples()) {
    if (!is_shell(path)) continue;
    ++scripts;
    const ProcessResult result = shell("bash -n " + shell_quoted(path.string()));
    EXPECT_EQ(result.exit_code, 0) << path << result.describe();
    EXPECT_EQ(result.err, "") << path;
  }
  EXPECT_EQ(scripts, 4);
}

// Stand-ins that say what they were given.
class Stubs {
 public:
  Stubs() {
    for (const std::string name : {"srun", "mpirun"})
      write(name,
            "echo \"$*\"; echo \"head $MASTER_ADDR, resume ${GRAPEVINE_RESUME-}\"; exit ${CODE-0}");
    write("scontrol", "echo scontrol \"$*\"");
    write("grapevine",
          "echo \"$RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $*\"; "
          "[ $RANK != \"${DIES-}\" ] || exit 3; [ -z \"${DIES-}\" ] || exec sleep 1000");
  }
  ProcessResult run(const std::string& script, std::vector<std::string> arguments,
                    const std::vector<std::string>& variables) const {
    ProcessOptions options = program("/usr/bin/env");
    options.directory = folder_.path();
    options.environment = variables;
    options.environment.push_back("PATH=" + folder_.path().string() + ":" + std::getenv("PATH"));
    arguments.insert(arguments.begin(), {"bash", (kExamples / script).string()});
    return run_process(arguments, options);
  }
  const fs::path& folder() const { return folder_.path(); }

 private:
  void write(const std::string& name, const std::string& body) const {
    const fs::path path = folder_.path() / name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }
  TemporaryDirectory folder_;
};

TEST(ClusterExamples, SlurmScriptsStartTrainAndResume) {
  const Stubs stubs;
  const std::map<std::string, std::string> transports = {{"slurm-ethernet.sbatch", "tcp"},
                                                         {"slurm-infiniband.sbatch", "ucx"}};
  for (const auto& [script, transport] : transports) {
    const std::vector<std::string> variables = {"SLURM_JOB_ID=42", "SLURM_CPUS_PER_TASK=8", "OUT",
                                                "GRAPEVINE_RESUME"};
    fs::remove_all(stubs.folder() / "runs");
    auto result = stubs.run(script, {"--algorithm", "osgp"}, variables);
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_NE(result.out.find("grapevine train --transport " + transport), std::string::npos);
    EXPECT_NE(result.out.find("--out runs/42 --algorithm osgp\n"), std::string::npos);
    EXPECT_NE(result.out.find("resume \n"), std::string::npos) << result.describe();
    fs::create_directories(stubs.folder() / "runs" / "42" / "checkpoint" / "latest");
    result = stubs.run(script, {}, variables);
    EXPECT_NE(result.out.find("resume runs/42\n"), std::string::npos) << result.describe();
  }
}

// A lost machine, process or link is a reason to start again, a few times; nothing else is.
TEST(ClusterExamples, SlurmScriptsRequeueWhatARestartMayHelp) {
  const Stubs stubs;
  for (const std::string script : {"slurm-ethernet.sbatch", "slurm-infiniband.sbatch"})
    for (const auto& [code, restarts, again] :
         std::vector<std::tuple<int, int, bool>>{{3, 0, true},
                                                 {137, 2, true},
                                                 {3, 3, false},
                                                 {1, 0, false},
                                                 {2, 0, false},
                                                 {4, 0, false},
                                                 {0, 0, false}}) {
      SCOPED_TRACE(script + ", exit code " + std::to_string(code));
      const auto result =
          stubs.run(script, {},
                    {"SLURM_JOB_ID=42", "SLURM_CPUS_PER_TASK=8", "CODE=" + std::to_string(code),
                     "SLURM_RESTART_COUNT=" + std::to_string(restarts)});
      EXPECT_EQ(result.exit_code, code) << result.describe();
      EXPECT_EQ(result.out.find("scontrol requeue 42") != std::string::npos, again)
          << result.describe();
    }
}

TEST(ClusterExamples, MpirunScriptNamesTheFirstHost) {
  const Stubs stubs;
  const std::string hostfile = (kExamples / "hostfile").string();
  const auto result =
      stubs.run("mpirun.sh", {hostfile, "6", "--algorithm", "sgp"}, {"MASTER_PORT", "MASTER_ADDR"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "--hostfile " + hostfile +
                            " -n 6 -x MASTER_ADDR -x MASTER_PORT grapevine train --transport tcp "
                            "--algorithm sgp\nhead node1, resume \n");
}

TEST(ClusterExamples, TorchrunScriptHandsOutRanks) {
  const Stubs stubs;
  const auto result = stubs.run("torchrun.sh", {"--steps", "3"},
                                {"NODE=1", "NODES=3", "PER_NODE=2", "MASTER_ADDR=node1", "DIES="});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  for (const std::string line :
       {"2/6 0/2 train --transport tcp --steps 3\n", "3/6 1/2 train --transport tcp --steps 3\n"})
    EXPECT_NE(result.out.find(line), std::string::npos) << result.describe();
}

TEST(ClusterExamples, TorchrunScriptEndsWithTheFirstThatDies) {
  const auto result = Stubs().run("torchrun.sh", {}, {"NODE=0", "NODES=1", "PER_NODE=3", "DIES=1"});
  EXPECT_EQ(result.exit_code, 3) << result.describe();
}

TEST(ClusterExamples, HostfileParses) {
  const fs::path path = kExamples / "hostfile";
  const auto hosts = parse_hostfile(read_file(path), path.string());
  ASSERT_TRUE(hosts.ok()) << hosts.error().message;
  EXPECT_EQ(hosts->size(), 2u);
}

TEST(ClusterExamples, YamlParses) {
  if (shell("python3 -c 'import yaml'").exit_code != 0)
    GTEST_SKIP() << "python3 has no module yaml: kubernetes.yaml is not parsed";
  const auto result = shell(
      "python3 -c 'import sys, yaml; documents = list(yaml.safe_load_all(open(sys.argv[1]))); "
      "print(*[d[\"kind\"] for d in documents]); "
      "spec = documents[1][\"spec\"]; pod = spec[\"template\"][\"spec\"]; "
      "print(spec[\"completions\"], pod[\"subdomain\"] == documents[0][\"metadata\"][\"name\"], "
      "*[e.get(\"value\") for e in pod[\"containers\"][0][\"env\"] if e[\"name\"] == "
      "\"WORLD_SIZE\"], *[r[\"onExitCodes\"][\"values\"] for r in "
      "spec[\"podFailurePolicy\"][\"rules\"] if r[\"action\"] == \"FailJob\"], "
      "pod[\"restartPolicy\"])' " +
      shell_quoted((kExamples / "kubernetes.yaml").string()));
  EXPECT_EQ(result.out, "Service Job\n4 True 4 [1, 2] Never\n") << result.describe();
}

TEST(ClusterExamples, UnitIsValid) {
  if (!present("systemd-analyze"))
    GTEST_SKIP() << "systemd-analyze is not here: grapevine-node.service is not checked";
  // The check wants the program to be there.
  const TemporaryDirectory folder;
  std::string text = read_file(kExamples / "grapevine-node.service");
  const std::string installed = "/usr/bin/grapevine";
  const auto at = text.find(installed);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, installed.size(), GRAPEVINE_EXECUTABLE);
  const fs::path unit = folder.path() / "grapevine-node.service";
  std::ofstream(unit) << text;
  const auto result = shell("systemd-analyze verify --man=no " + shell_quoted(unit.string()));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.err.find("grapevine-node"), std::string::npos) << result.describe();
}

// "--x" of every command that starts with `grapevine VERB`, by verb.
std::vector<std::pair<std::string, std::string>> options_used(std::string text) {
  std::vector<std::pair<std::string, std::string>> used;
  text = std::regex_replace(text, std::regex(R"(\\\n)"), " ");
  const std::regex command(R"(\bgrapevine[\s,]+([a-z]+)\b([^\n`]*))");
  const std::regex option(R"((?:^|[\s,\[])(--[a-z0-9-]+)|(?:^|\s)--\s+([a-z]+))");
  for (std::sregex_iterator found(text.begin(), text.end(), command), end; found != end; ++found) {
    std::string verb = (*found)[1];
    if (verb != "launch" && verb != "train" && verb != "node") continue;
    const std::string rest = (*found)[2];
    for (std::sregex_iterator word(rest.begin(), rest.end(), option); word != end; ++word) {
      if ((*word)[2].matched) verb = (*word)[2];  // the verb that launch starts
      if ((*word)[1].matched) used.emplace_back(verb, (*word)[1]);
    }
  }
  return used;
}

TEST(ClusterExamples, EveryOptionExists) {
  std::vector<fs::path> paths = examples();
  paths.push_back(fs::path(GRAPEVINE_SOURCE_DIR) / "docs" / "cluster.md");
  std::map<std::string, std::string> help;
  std::size_t options = 0;
  for (const fs::path& path : paths) {
    for (const auto& [verb, option] : options_used(read_file(path))) {
      ++options;
      if (help[verb].empty())
        help[verb] = run_process({verb, verb == "train" ? "--help-all" : "--help"}).out;
      const std::regex listed("[ ,]" + option + "(?![a-z0-9-])");
      EXPECT_TRUE(std::regex_search(help[verb], listed))
          << path << ": grapevine " << verb << " has no " << option;
    }
  }
  EXPECT_GT(options, 20u);
}

}  // namespace examples_test
}  // namespace grapevine
