// The number of this process and of all processes, from the environment of a launcher.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "messages/expected.hpp"

namespace grapevine {

// One process of a job that a launcher started: torchrun-style, SLURM, Open MPI or PMI.
struct LaunchedProcess {
  std::int32_t process = 0;  // 0..processes-1
  std::int32_t processes = 1;
  std::int32_t local_process = 0;  // among those of this machine
  std::int32_t local_processes = 1;
  std::string head_host;  // where process 0 listens
  std::uint16_t head_port = 0;
  std::string listen_host;  // there, where that is not what `head_host` leads to; else empty
  std::string launcher;     // for messages: "torchrun", "SLURM", "Open MPI", "PMI"
  std::string job;  // the launcher's own name for the job, the same in all processes; or empty
  bool ends_with_any_process = false;  // the launcher ends the job once one of its processes ends
};

// Set for process 0 of `train` by `launch` where that is so.
inline constexpr char kLossEndsJobVariable[] = "GRAPEVINE_LOSS_ENDS_JOB";

// Beside MASTER_ADDR: where process 0 listens, if the others reach it at several addresses.
inline constexpr char kListenVariable[] = "GRAPEVINE_LISTEN_HOST";

// In process 0 of a job of nodes: HOST:PORT of the first node, which other nodes may join.
inline constexpr char kPoolVariable[] = "GRAPEVINE_POOL";

// `variable(name)`: the value of an environment variable, or null. Nothing where no launcher
// speaks. Errors (bad_input) name the variable: a number that is none, a process outside its job, a
// variable that is missing beside others of its launcher.
using Variables = std::function<const char*(const char* name)>;
Expected<std::optional<LaunchedProcess>> read_launcher_environment(const Variables& variable);

}  // namespace grapevine
