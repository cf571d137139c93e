#include "apps/launched/launcher_environment.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "messages/text/fnv1a.hpp"
#include "messages/text/parse_number.hpp"
#include "net/addresses.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMaxLaunched = 4096;  // of which each has a worker at least
constexpr std::int64_t kMaxRankPort = 65535;
constexpr char kLoopback[] = "127.0.0.1";
// The default of PyTorch's launchers.
constexpr std::uint16_t kDefaultPort = 29500;
// Derived ports stay below those that the kernel gives to outgoing connections (from 32768).
constexpr std::uint64_t kFirstDerivedPort = 10000;
constexpr std::uint64_t kDerivedPorts = 20000;

using Result = Expected<std::optional<LaunchedProcess>>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }
bool is_host_character(char c) { return is_alphanumeric(c) || std::strchr("._-", c) != nullptr; }
// Also IPv6, with a zone.
bool is_address_character(char c) {
  return is_host_character(c) || std::strchr(":%", c) != nullptr;
}

// "[::1]", as in URLs, is the address ::1.
std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

// A value in a message: always one short line.
std::string shown(std::string_view value) {
  constexpr std::size_t kLongest = 60;
  std::string text(value.substr(0, kLongest));
  for (char& c : text)
    if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
  return "'" + text + (value.size() > kLongest ? "…'" : "'");
}

std::uint16_t derived_port(std::uint64_t job) {
  return static_cast<std::uint16_t>(kFirstDerivedPort + job % kDerivedPorts);
}

// The variables, with errors that name them.
class Reader {
 public:
  explicit Reader(const Variables& variable) : variable_(variable) {}

  bool has(const char* name) const { return variable_(name) != nullptr; }

  // REQUIRES: has(name).
  std::string text(const char* name) const { return variable_(name); }

  // `beside`: variables of the same launcher, the likeliest first; one of them is set.
  Expected<std::int64_t> number(const char* name, const std::vector<const char*>& beside,
                                std::int64_t least, std::int64_t most) const {
    const char* value = variable_(name);
    if (value == nullptr) return missing(name, beside);
    const auto number = number_in<std::int64_t>(value);
    if (!number || *number < least || *number > most)
      return bad_input(std::string(name) + "=" + shown(value) + ": expected a number, " +
                       std::to_string(least) + ".." + std::to_string(most));
    return *number;
  }

  Error missing(const char* name, const std::vector<const char*>& beside) const {
    for (const char* other : beside)
      if (has(other))
        return bad_input(std::string(name) + " is not set, but " + other + " is: set both");
    return bad_input(std::string(name) + " is not set");
  }

  // MASTER_PORT where it is set.
  Expected<std::uint16_t> port(std::uint16_t otherwise) const {
    if (!has("MASTER_PORT")) return otherwise;
    const auto port = number("MASTER_PORT", {}, 1, kMaxRankPort);
    if (!port) return port.error();
    return static_cast<std::uint16_t>(*port);
  }

  // REQUIRES: has(name).
  Expected<std::string> host(const char* name = "MASTER_ADDR") const {
    const std::string given = text(name);
    const std::string host = without_brackets(given);
    if (!host.empty() && std::all_of(host.begin(), host.end(), is_address_character)) return host;
    return bad_input(std::string(name) + "=" + shown(given) +
                     ": expected a host name or an address");
  }

 private:
  const Variables& variable_;
};

// Names of the four numbers that every launcher gives.
struct Numbers {
  const char* process;
  const char* processes;
  const char* local_process;
  const char* local_processes;
};

Expected<LaunchedProcess> read_world(const Reader& reader, const Numbers& names) {
  LaunchedProcess result;
  const auto processes = reader.number(names.processes, {names.process}, 1, kMaxLaunched);
  if (!processes) return processes.error();
  const auto process = reader.number(names.process, {names.processes}, 0, *processes - 1);
  if (!process) return process.error();
  result.process = static_cast<std::int32_t>(*process);
  result.processes = static_cast<std::int32_t>(*processes);
  return result;
}

Expected<void> read_local(const Reader& reader, const Numbers& names, LaunchedProcess& result) {
  const bool said = reader.has(names.local_process) || reader.has(names.local_processes);
  if (result.processes == 1 && !said) return {};  // only one process
  const auto count = reader.number(names.local_processes, {names.local_process, names.process}, 1,
                                   result.processes);
  if (!count) return count.error();
  const auto local = reader.number(names.local_process, {names.local_processes}, 0, *count - 1);
  if (!local) return local.error();
  result.local_process = static_cast<std::int32_t>(*local);
  result.local_processes = static_cast<std::int32_t>(*count);
  return {};
}

// --- torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; LOCAL_RANK, LOCAL_WORLD_SIZE ---------

Result read_torchrun(const Reader& reader) {
  constexpr Numbers kNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
  auto result = read_world(reader, kNames);
  if (!result) return result.error();
  result->launcher = "torchrun";
  result->head_host = kLoopback;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"})
    if (result->processes > 1 && !reader.has(name))
      return bad_input(std::string(name) + " is not set, but RANK is: set it as in process 0");
  if (reader.has("MASTER_ADDR")) {
    auto host = reader.host();
    if (!host) return host.error();
    result->head_host = std::move(*host);
  }
  if (reader.has(kListenVariable)) {
    auto host = reader.host(kListenVariable);
    if (!host) return host.error();
    result->listen_host = std::move(*host);
  }
  const auto port = reader.port(0);
  if (!port) return port.error();
  result->head_port = *port;
  // torchrun's own agent listens on MASTER_PORT, so rank 0 takes the next one.
  const bool by_agent =
      reader.has("TORCHELASTIC_RUN_ID") && reader.has("TORCHELASTIC_RESTART_COUNT");
  if (by_agent && *port > 0)
    result->head_port = static_cast<std::uint16_t>(*port < kMaxRankPort ? *port + 1 : *port - 1);
  // torchrun's "none" names no job.
  if (reader.has("TORCHELASTIC_RUN_ID") && reader.text("TORCHELASTIC_RUN_ID") != "none")
    result->job = "torchrun " + reader.text("TORCHELASTIC_RUN_ID");
  if (reader.has(kNames.local_process) || reader.has(kNames.local_processes)) {
    if (auto local = read_local(reader, kNames, *result); !local) return local.error();
  } else if (is_loopback_host(result->head_host)) {
    // Users who type the four variables leave these out; then all processes share a machine.
    result->local_process = result->process;
    result->local_processes = result->processes;
  }
  return std::optional<LaunchedProcess>(std::move(*result));
}

// --- SLURM --------------------------------------------------------------------------------------

// Digits at `at`, or nothing.
std::string_view digits(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return text.substr(at, end - at);
}

// "003-007,12]…" after an opening bracket: its first number, and where the bracket ends.
struct Bracket {
  std::string_view first;
  std::size_t end;
};
std::optional<Bracket> read_bracket(std::string_view list, std::size_t at) {
  const std::string_view first = digits(list, at);
  while (true) {
    const std::string_view low = digits(list, at);
    at += low.size();
    if (low.empty() || at >= list.size()) return std::nullopt;
    if (list[at] == '-') {
      const std::string_view high = digits(list, at + 1);
      at += 1 + high.size();
      if (high.empty() || at >= list.size()) return std::nullopt;
    }
    if (list[at] == ']') return Bracket{first, at + 1};
    if (list[at] != ',') return std::nullopt;
    ++at;
  }
}

// The first of "node[003-007,12],other", "rack[0-1]n[2-3].site"; nothing where it is no such list.
std::optional<std::string> first_host(std::string_view list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] == '[') {
      const auto bracket = read_bracket(list, at + 1);
      if (!bracket) return std::nullopt;
      host += bracket->first;
      at = bracket->end;
    } else if (is_host_character(list[at])) {
      host += list[at++];
    } else {
      return std::nullopt;
    }
  }
  if (host.empty()) return std::nullopt;
  return host;
}

// Entry `node` of "4(x2),3" (4, 4, 3 tasks); nothing where it has no such entry.
std::optional<std::int64_t> tasks_of_node(std::string_view list, std::int64_t node) {
  const auto take_number = [&list]() -> std::optional<std::int64_t> {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(list.data(), list.data() + list.size(), number);
    if (error != std::errc() || number < 1) return std::nullopt;
    list.remove_prefix(static_cast<std::size_t>(end - list.data()));
    return number;
  };
  const auto take = [&list](std::string_view token) {
    const bool found = list.substr(0, token.size()) == token;
    if (found) list.remove_prefix(token.size());
    return found;
  };
  do {
    const auto tasks = take_number();
    if (!tasks) return std::nullopt;
    std::int64_t nodes = 1;
    if (take("(x")) {
      const auto times = take_number();
      if (!times || !take(")")) return std::nullopt;
      nodes = *times;
    }
    if (node < nodes) return tasks;
    node -= nodes;
  } while (take(","));
  return std::nullopt;
}

// srun always gives the number of tasks of each node; SLURM_NTASKS_PER_NODE is there only where it
// was asked for, and then it is an upper bound.
Expected<std::int32_t> slurm_local_tasks(const Reader& reader, std::int32_t tasks) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    if (!reader.has(name) || !reader.has("SLURM_NODEID")) continue;
    const auto node =
        reader.number("SLURM_NODEID", {name}, 0, std::numeric_limits<std::int32_t>::max());
    if (!node) return node.error();
    const auto local = tasks_of_node(reader.text(name), *node);
    if (!local)
      return bad_input(std::string(name) + "=" + shown(reader.text(name)) +
                       ": expected tasks of node " + std::to_string(*node) + ", like 4(x2),3");
    return static_cast<std::int32_t>(std::min<std::int64_t>(*local, tasks));
  }
  if (!reader.has("SLURM_NTASKS_PER_NODE"))
    return bad_input(
        "neither SLURM_STEP_TASKS_PER_NODE nor SLURM_NTASKS_PER_NODE is set, but SLURM_PROCID is: "
        "start the process with srun, which sets them");
  const auto local =
      reader.number("SLURM_NTASKS_PER_NODE", {}, 1, std::numeric_limits<std::int32_t>::max());
  if (!local) return local.error();
  return static_cast<std::int32_t>(std::min<std::int64_t>(*local, tasks));
}

// Of the other counts some are those of the whole job, or bounds: the tasks may be on more
// machines.
bool is_slurm_step_of_one_machine(const Reader& reader, const LaunchedProcess& process) {
  return reader.has("SLURM_STEP_TASKS_PER_NODE") && reader.has("SLURM_NODEID") &&
         process.local_processes == process.processes;
}

Expected<std::string> slurm_head(const Reader& reader, const LaunchedProcess& process) {
  if (reader.has("MASTER_ADDR")) return reader.host();
  if (is_slurm_step_of_one_machine(reader, process)) return std::string(kLoopback);
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    if (!reader.has(name)) continue;
    auto host = first_host(reader.text(name));
    if (host) return std::move(*host);
    return bad_input(std::string(name) + "=" + shown(reader.text(name)) +
                     ": expected host names, like node[003-007,12]");
  }
  return bad_input("SLURM_JOB_NODELIST is not set, but SLURM_PROCID is: set it or MASTER_ADDR");
}

// Every task derives the same one; jobs and steps side by side get different ones.
Expected<std::uint16_t> slurm_port(const Reader& reader) {
  constexpr std::int64_t kMostId = std::numeric_limits<std::uint32_t>::max();
  constexpr std::int64_t kStepStride = 101;
  if (reader.has("MASTER_PORT")) return reader.port(0);
  if (!reader.has("SLURM_JOB_ID"))
    return bad_input("SLURM_JOB_ID is not set, but SLURM_PROCID is: set it or MASTER_PORT");
  const auto job = reader.number("SLURM_JOB_ID", {}, 0, kMostId);
  if (!job) return job.error();
  std::int64_t step = 0;
  if (reader.has("SLURM_STEP_ID")) {
    const auto number = reader.number("SLURM_STEP_ID", {}, 0, kMostId);
    if (!number) return number.error();
    step = *number;
  }
  return derived_port(static_cast<std::uint64_t>(*job + kStepStride * step));
}

// A shell of `srun --pty bash`, or a batch script without --ntasks: one process without a count.
bool is_slurm_shell(const Reader& reader) {
  if (reader.text("SLURM_PROCID") != "0") return false;
  return !reader.has("SLURM_NTASKS") || reader.text("SLURM_NTASKS") == "1";
}

Result read_slurm(const Reader& reader) {
  constexpr Numbers kNames = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
  if (is_slurm_shell(reader)) return std::optional<LaunchedProcess>();
  auto result = read_world(reader, kNames);
  if (!result) return result.error();
  result->launcher = "SLURM";
  const auto local_tasks = slurm_local_tasks(reader, result->processes);
  if (!local_tasks) return local_tasks.error();
  result->local_processes = *local_tasks;
  const auto local =
      reader.number(kNames.local_process, {kNames.process}, 0, result->local_processes - 1);
  if (!local) return local.error();
  result->local_process = static_cast<std::int32_t>(*local);
  auto host = slurm_head(reader, *result);
  if (!host) return host.error();
  result->head_host = std::move(*host);
  const auto port = slurm_port(reader);
  if (!port) return port.error();
  result->head_port = *port;
  if (reader.has("SLURM_JOB_ID"))
    result->job = "SLURM " + reader.text("SLURM_JOB_ID") +
                  (reader.has("SLURM_STEP_ID") ? "." + reader.text("SLURM_STEP_ID") : "");
  return std::optional<LaunchedProcess>(std::move(*result));
}

// --- Open MPI and PMI ---------------------------------------------------------------------------

// mpirun's own address in "1234.0;tcp://10.0.0.1,192.168.0.7:45678". PMIX_SERVER_URI* look alike,
// but name the daemon of the process's own machine, which is another one on every machine.
std::optional<std::string> address_in(const std::string& uri) {
  const std::string scheme = "tcp://";
  const auto found = uri.find(scheme);
  if (found == std::string::npos) return std::nullopt;
  const auto begin = found + scheme.size();
  const std::string host = uri.substr(begin, uri.find_first_of(",:;", begin) - begin);
  const bool valid = !host.empty() && std::all_of(host.begin(), host.end(), is_host_character);
  if (!valid || is_loopback_host(host)) return std::nullopt;
  return host;
}

Expected<std::string> mpi_head(const Reader& reader, const LaunchedProcess& process) {
  if (reader.has("MASTER_ADDR")) return reader.host();
  if (process.local_processes == process.processes) return std::string(kLoopback);
  if (reader.has("OMPI_MCA_orte_hnp_uri"))
    if (auto host = address_in(reader.text("OMPI_MCA_orte_hnp_uri"))) return std::move(*host);
  return bad_input("MASTER_ADDR is not set, and " + process.launcher +
                   " does not give the host of process 0: set MASTER_ADDR to its host, e.g. "
                   "mpirun -x MASTER_ADDR=node1");
}

// Jobs side by side on a machine differ in their name space, where there is one.
std::uint16_t mpi_port(const Reader& reader) {
  const char* name = "PMIX_NAMESPACE";
  return reader.has(name) ? derived_port(fnv1a(reader.text(name))) : kDefaultPort;
}

Result read_mpi(const Reader& reader, const Numbers& names, const char* launcher) {
  auto result = read_world(reader, names);
  if (!result) return result.error();
  result->launcher = launcher;
  if (auto local = read_local(reader, names, *result); !local) return local.error();
  auto host = mpi_head(reader, *result);
  if (!host) return host.error();
  result->head_host = std::move(*host);
  const auto port = reader.port(mpi_port(reader));
  if (!port) return port.error();
  result->head_port = *port;
  if (reader.has("PMIX_NAMESPACE")) result->job = "PMIx " + reader.text("PMIX_NAMESPACE");
  return std::optional<LaunchedProcess>(std::move(*result));
}

constexpr Numbers kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Numbers kPmi = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

bool speaks(const Reader& reader, const Numbers& names) {
  return reader.has(names.process) || reader.has(names.processes);
}

// An mpiexec that srun started (one per machine) leaves srun's numbers beside its own, which count
// then. `srun --mpi=pmi2` gives both, and they agree.
bool pmi_differs_from_slurm(const Reader& reader) {
  const auto same = [&](const char* a, const char* b) {
    return reader.has(a) && reader.has(b) && reader.text(a) == reader.text(b);
  };
  return !same("PMI_RANK", "SLURM_PROCID") || !same("PMI_SIZE", "SLURM_NTASKS");
}

Result read_place(const Reader& reader) {
  if (reader.has("RANK") || reader.has("WORLD_SIZE")) return read_torchrun(reader);
  if (speaks(reader, kOpenMpi)) return read_mpi(reader, kOpenMpi, "Open MPI");
  const bool pmi = speaks(reader, kPmi);
  if (reader.has("SLURM_PROCID") && (!pmi || !pmi_differs_from_slurm(reader)))
    return read_slurm(reader);
  if (pmi) return read_mpi(reader, kPmi, "PMI");
  return std::optional<LaunchedProcess>();
}

// `launch`, mpirun and torchrun, and srun with --kill-on-bad-exit.
bool ends_with_any_process(const Reader& reader) {
  for (const char* name : {kLossEndsJobVariable, kOpenMpi.processes, "TORCHELASTIC_RUN_ID"})
    if (reader.has(name)) return true;
  constexpr char kKillBadExit[] = "SLURM_KILL_BAD_EXIT";
  return reader.has(kKillBadExit) && reader.text(kKillBadExit) != "0";
}

}  // namespace

Expected<std::optional<LaunchedProcess>> read_launcher_environment(const Variables& variable) {
  const Reader reader(variable);
  Result launched = read_place(reader);
  if (launched && *launched) (*launched)->ends_with_any_process = ends_with_any_process(reader);
  return launched;
}

}  // namespace grapevine
