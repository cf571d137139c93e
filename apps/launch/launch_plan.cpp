#include "apps/launch/launch_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <numeric>
#include <sstream>

#include "messages/text/parse_number.hpp"
#include "messages/text/shell_quoted.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

constexpr std::int32_t kMaxSlots = 1'000'000;

// Without a leading dash: ssh would take that for an option.
bool is_host(const std::string& name) {
  const auto allowed = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("._-:@%", c) != nullptr;
  };
  return !name.empty() && name[0] != '-' && std::all_of(name.begin(), name.end(), allowed);
}

// The line for `name:N`, as other launchers write N processes of a host. A host has no colon, or
// several of them: an IPv6 address.
std::string line_of_count(const std::string& word) {
  const std::size_t colon = word.find(':');
  if (colon == std::string::npos || word.find(':', colon + 1) != std::string::npos) return {};
  return word.substr(0, colon) +
         " slots=" + (colon + 1 < word.size() ? word.substr(colon + 1) : "N");
}

std::optional<HostSlots> parse_line(const std::vector<std::string>& words) {
  const std::string key = "slots=";
  HostSlots host{words[0], 1};
  if (!is_host(host.name) || words.size() > 2) return std::nullopt;
  if (words.size() == 1) return host;
  const std::string& count = words[1];
  if (count.rfind(key, 0) != 0) return std::nullopt;
  const auto slots = number_in<decltype(host.slots)>(std::string_view(count).substr(key.size()));
  if (!slots || *slots < 1 || *slots > kMaxSlots) return std::nullopt;
  host.slots = *slots;
  return host;
}

bool is_here(const std::string& host, const std::string& this_host) {
  const std::string short_name = this_host.substr(0, this_host.find('.'));
  for (const std::string& name : {std::string("localhost"), std::string("127.0.0.1"),
                                  std::string("::1"), this_host, short_name})
    if (host == name) return true;
  return false;
}

// Runs in a shell of the host. The watcher signals its whole process group, itself the only member
// that ignores it, and cannot hit a process that got a recycled number. `exec`: the process itself
// is the process that ssh waits for, and receives signals without a shell in between.
constexpr char kWatcher[] =
    "exec 3<&0; "
    "( trap '' INT TERM USR1; "
    "while read -r s; do kill -s \"$s\" 0; done; "
    "kill -s TERM 0; n=10; "
    "while [ $n -gt 0 ] && kill -0 $$; do sleep 1; n=$((n - 1)); done; "
    "kill -s KILL 0 ) <&3 >/dev/null 2>&1 & "
    "exec 3<&-; ";

}  // namespace

std::vector<std::string> words_in(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Expected<std::vector<HostSlots>> parse_hostfile(const std::string& text, const std::string& path) {
  std::vector<HostSlots> hosts;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const auto words = words_in(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    const std::string where = fmt::format("{}:{}: ", path, number);
    const std::string with_slots = is_host(words[0]) ? line_of_count(words[0]) : "";
    if (!with_slots.empty())
      return bad_input(where + words[0] + " is no name of a host: write '" + with_slots +
                       "'; a port of ssh goes into --ssh 'ssh -p PORT'");
    const auto host = parse_line(words);
    if (!host) return bad_input(where + "expected 'host slots=N', N at least 1");
    for (const HostSlots& other : hosts)
      if (other.name == host->name)
        return bad_input(where + host->name + " is named twice: give it one line");
    hosts.push_back(*host);
  }
  if (hosts.empty()) return bad_input(path + ": names no host: give lines like 'node1 slots=4'");
  return hosts;
}

namespace {

// A hostfile may call this machine by several names.
void number_those_here(std::vector<LaunchPlace>& placements) {
  std::int32_t here = 0;
  for (LaunchPlace& place : placements)
    if (place.here) place.local_rank = here++;
  for (LaunchPlace& place : placements)
    if (place.here) place.local_ranks = here;
}

}  // namespace

Expected<std::vector<LaunchPlace>> place_ranks(const std::vector<HostSlots>& hosts,
                                               std::int32_t ranks, const std::string& this_host) {
  std::vector<LaunchPlace> placements;
  for (const HostSlots& host : hosts) {
    const auto left = ranks - static_cast<std::int32_t>(placements.size());
    const std::int32_t here = std::min(host.slots, left);
    for (std::int32_t local = 0; local < here; ++local)
      placements.push_back({static_cast<std::int32_t>(placements.size()), ranks, host.name,
                            is_here(host.name, this_host), local, here});
  }
  const auto slots =
      std::accumulate(hosts.begin(), hosts.end(), std::int64_t{0},
                      [](std::int64_t sum, const HostSlots& host) { return sum + host.slots; });
  number_those_here(placements);
  if (slots < ranks)
    return bad_input(fmt::format(
        "-n {}: the hostfile has {} slots: start fewer processes or add hosts", ranks, slots));
  return placements;
}

std::string head_host(const std::vector<LaunchPlace>& placements, const std::string& here) {
  const LaunchPlace& first = placements.front();
  if (!first.here) return first.host.substr(first.host.find('@') + 1);
  const bool all_here = std::all_of(placements.begin(), placements.end(),
                                    [](const LaunchPlace& placement) { return placement.here; });
  return all_here ? "127.0.0.1" : here;
}

std::vector<std::string> rank_variables(const LaunchPlace& placement, const Head& head) {
  return {fmt::format("RANK={}", placement.rank),
          fmt::format("WORLD_SIZE={}", placement.ranks),
          fmt::format("LOCAL_RANK={}", placement.local_rank),
          fmt::format("LOCAL_WORLD_SIZE={}", placement.local_ranks),
          fmt::format("MASTER_ADDR={}", head.host),
          fmt::format("MASTER_PORT={}", head.port)};
}

std::vector<std::string> ssh_command(const std::vector<std::string>& ssh, const std::string& host,
                                     const std::string& directory,
                                     const std::vector<std::string>& variables,
                                     const std::vector<std::string>& arguments) {
  const std::string token = kJobTokenVariable;
  std::string script = "trap '' USR1; cd " + shell_quoted(directory) + " || exit 1; IFS= read -r " +
                       token + "; export " + token + "; " + kWatcher + "exec env";
  for (const std::string& variable : variables) script += " " + shell_quoted(variable);
  for (const std::string& argument : arguments) script += " " + shell_quoted(argument);
  script += " </dev/null";
  std::vector<std::string> command = ssh;
  command.push_back(host);
  // Whichever shell the user has there, sh runs the script.
  command.push_back("exec sh -c " + shell_quoted(script));
  return command;
}

std::optional<std::string> option_value(const std::vector<std::string>& arguments,
                                        const std::string& name) {
  const std::string option = "--" + name;
  std::optional<std::string> value;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == option && i + 1 < arguments.size()) value = arguments[i + 1];
    if (arguments[i].rfind(option + "=", 0) == 0) value = arguments[i].substr(option.size() + 1);
  }
  return value;
}

bool joins_a_run(const std::vector<std::string>& verb, const char* variable) {
  if (verb.empty() || verb.front() != "train") return false;
  return option_value(verb, "join").has_value() || (variable != nullptr && *variable != '\0');
}

std::vector<std::string> without_option(const std::vector<std::string>& arguments,
                                        const std::string& name) {
  const std::string option = "--" + name;
  std::vector<std::string> result;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == option) {
      ++i;  // its value
    } else if (arguments[i].rfind(option + "=", 0) != 0) {
      result.push_back(arguments[i]);
    }
  }
  return result;
}

}  // namespace grapevine
