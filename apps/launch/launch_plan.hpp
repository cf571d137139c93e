// The plan of `launch`: hostfiles, ranks on hosts, the variables and the command line of each
// process. Nothing here starts anything.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// The words between spaces.
std::vector<std::string> words_in(const std::string& line);

struct HostSlots {
  std::string name;  // as ssh takes it: HOST or USER@HOST
  std::int32_t slots = 1;
};

// Lines "host slots=N" ("host" alone: one slot), "#" starts a comment. `path` is for messages.
// Errors (bad_input): file:line of a line that is none, a host named twice, no host at all.
Expected<std::vector<HostSlots>> parse_hostfile(const std::string& text, const std::string& path);

// One process of a job.
struct LaunchPlace {
  std::int32_t rank = 0;
  std::int32_t ranks = 1;
  std::string host;
  bool here = true;  // started directly, not over ssh
  std::int32_t local_rank = 0;
  std::int32_t local_ranks = 1;
};

// Ranks in order, host after host, each filled before the next one. `this_host`: which names,
// beside localhost, are started directly. Errors (bad_input): more ranks than slots.
Expected<std::vector<LaunchPlace>> place_ranks(const std::vector<HostSlots>& hosts,
                                               std::int32_t ranks, const std::string& this_host);

// Where the processes find rank 0: a host name or an address, and a port.
struct Head {
  std::string host;
  std::uint16_t port = 0;
};

// Where rank 0 of `placements` is found: loopback where all run here, `here` (this machine as the
// others see it) where only rank 0 does, else its host.
std::string head_host(const std::vector<LaunchPlace>& placements, const std::string& here);

// "RANK=3", …: torchrun's six variables.
std::vector<std::string> rank_variables(const LaunchPlace& placement, const Head& head);

// The command that runs `arguments` with `variables` in `directory` on `host`. `ssh`: the program
// and its options. The first line of standard input is the job's secret, which the process gets as
// kJobTokenVariable: command lines are for all users to see. Then come signal names, one a line
// ("TERM"), which the process gets; at its end the process gets SIGTERM, and after ten seconds
// SIGKILL: so it ends with its launcher. The process begins with SIGUSR1 ignored.
std::vector<std::string> ssh_command(const std::vector<std::string>& ssh, const std::string& host,
                                     const std::string& directory,
                                     const std::vector<std::string>& variables,
                                     const std::vector<std::string>& arguments);

// From the loss of the connection until that process has ended.
inline constexpr std::chrono::seconds kEndOverSsh{12};

// The value of --NAME VALUE or --NAME=VALUE in a command line, the last one; nothing where absent.
std::optional<std::string> option_value(const std::vector<std::string>& arguments,
                                        const std::string& name);
// Whether the processes of this command line each join a run that others have begun, with --join of
// `train` or its `variable` (null: it is not set): none of them is process 0 of a run.
bool joins_a_run(const std::vector<std::string>& verb, const char* variable);
// The command line without that option.
std::vector<std::string> without_option(const std::vector<std::string>& arguments,
                                        const std::string& name);

}  // namespace grapevine
