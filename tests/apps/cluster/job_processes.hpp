// The processes of a job, started one by one as a launcher would.
#pragma once
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/addresses.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace cluster_test {

// Reserved until this program ends.
inline std::uint16_t free_port() {
  static std::vector<ReservedPort> reserved;
  reserved.push_back(*reserve_tcp_port());
  return reserved.back().number;
}

// For what a test awaits of the processes of a job. They are killed after ProcessOptions::timeout,
// and three such waits in a row end before that: a failure is that of the wait.
inline std::chrono::milliseconds longest_wait() { return ProcessOptions().timeout * 3 / 10; }

// False where it does not become true in time.
template <class Condition>
bool becomes_true(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + longest_wait();
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return condition();
}

// Waits for the first checkpoint; false where none comes in time.
inline bool has_begun(const std::filesystem::path& out) {
  return becomes_true([&out] { return std::filesystem::exists(out / "checkpoint" / "latest"); });
}

// One process of a job, with the variables of a launcher.
// For jobs whose processes are killed: one that dies while it writes into a queue of UCX's shared
// memory blocks the queue's receiver (docs/cluster.md).
inline constexpr char kUcxBetweenHosts[] = "UCX_TLS=tcp";

inline Process start(const std::string& launcher, int process, int processes, std::uint16_t port,
                     const std::vector<std::string>& arguments,
                     const std::vector<std::string>& more = {}) {
  ProcessOptions options;
  const std::string rank = std::to_string(process), count = std::to_string(processes);
  options.environment = {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port)};
  options.environment.insert(options.environment.end(), more.begin(), more.end());
  std::vector<std::pair<std::string, std::string>> names = {{"RANK", rank}, {"WORLD_SIZE", count}};
  if (launcher == "slurm")
    names = {{"SLURM_PROCID", rank},
             {"SLURM_NTASKS", count},
             {"SLURM_LOCALID", rank},
             {"SLURM_NTASKS_PER_NODE", count},
             {"SLURM_STEP_NODELIST", "localhost"}};
  if (launcher == "openmpi")
    names = {{"OMPI_COMM_WORLD_RANK", rank},
             {"OMPI_COMM_WORLD_SIZE", count},
             {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
             {"OMPI_COMM_WORLD_LOCAL_SIZE", count}};
  for (const auto& [name, value] : names) options.environment.push_back(name + "=" + value);
  return Process(arguments, options);
}

}  // namespace cluster_test
}  // namespace grapevine
