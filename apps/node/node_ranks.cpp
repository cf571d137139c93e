#include "apps/node/node_ranks.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "actors/cluster/output/line_parts.hpp"
#include "actors/cluster/process_supervision.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/launch/launch_plan.hpp"
#include "apps/launched/launcher_environment.hpp"
#include "apps/node/node_link.hpp"
#include "messages/text/cut_to.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

constexpr char kPrefix[] = "GRAPEVINE_";

// A node's own options are none of a job's, and its secret is its own.
std::vector<std::string> taken_away() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool stays = name == "GRAPEVINE_LOG_LEVEL" || name == "GRAPEVINE_NETWORK_INTERFACE";
    if (name.rfind(kPrefix, 0) == 0 && !stays) names.push_back(name);
  }
  return names;
}

}  // namespace

NodeRanks::NodeRanks(NodeRanksConfig config)
    : config_(std::move(config)),
      children_([this](std::size_t child, bool to_err, const std::string& line) {
        write(processes_[child], to_err, line);
      }) {}

// A message is not longer than others of the control plane.
void NodeRanks::write(std::int32_t process, bool to_err, const std::string& line) const {
  split_line(line, [&](std::string part, bool continues) {
    config_.on_output({Seal{}, job_, process, to_err, std::move(part), continues});
  });
}

Expected<std::string> NodeRanks::head_host(const StartRanks& start) const {
  if (!config_.first_host.empty()) return config_.first_host;
  if (!is_any_host(config_.own_host)) return config_.own_host;
  if (!spreads(start)) return std::string("127.0.0.1");
  std::string found = start.other_host.empty() ? tcp::primary_address(config_.own_host == "::")
                                               : own_address_towards(start.other_host);
  if (!found.empty()) return found;
  return Error{Errc::io, "this machine has no address towards '" + start.other_host +
                             "': let the first node listen on one that the others reach"};
}

void NodeRanks::refuse(const StartRanks& start, const Error& why) const {
  for (std::int32_t i = 0; i < start.count; ++i)
    config_.on_exited(
        {Seal{}, start.job, start.first + i, -1, 0, cut_to(why.message, kLongestErrorText)});
}

std::vector<std::string> NodeRanks::variables_of(const StartRanks& start, std::int32_t index,
                                                 const std::string& head) const {
  LaunchPlace place;
  place.rank = start.first + index;
  place.ranks = start.processes;
  place.local_rank = start.slot + index;
  place.local_ranks = start.here;
  std::vector<std::string> variables = rank_variables(place, {head, start.port});
  variables.push_back(kJobTokenVariable + ("=" + mac_of(config_.secret, {"job", start.nonce})));
  for (std::string& name : taken_away()) variables.push_back(std::move(name));
  if (!config_.tls.empty()) variables.push_back(environment_name("tls") + "=" + config_.tls);
  if (place.rank != 0) return variables;
  variables.push_back(kReportBeginVariable + std::string("=1"));
  variables.push_back(kPoolVariable + ("=" + config_.pool));
  // Each of the other nodes finds process 0 at the address by which it knows this one.
  if (is_any_host(config_.own_host) && spreads(start))
    variables.push_back(kListenVariable + ("=" + config_.own_host));
  // Its own --control comes first. The pool reads the port from what process 0 writes.
  variables.push_back(environment_name("control") + "=" + tcp::join_address(config_.own_host, 0));
  return variables;
}

void NodeRanks::start(const StartRanks& start) {
  if (start.job != job_) {
    kill_all();
    processes_.clear();
  }
  job_ = start.job;
  const auto head = head_host(start);
  if (!head) return refuse(start, head.error());
  std::vector<std::string> arguments = {config_.program, "train"};
  arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
  for (std::int32_t i = 0; i < start.count; ++i) {
    const auto child = children_.start({arguments, variables_of(start, i, *head), false, ""});
    if (child)
      processes_.push_back(start.first + i);
    else
      config_.on_exited({Seal{}, job_, start.first + i, -1, 0, child.error().message});
  }
}

void NodeRanks::signal(std::int64_t job, int number, std::int32_t process) {
  if (job != job_) return;
  if (process < 0) return children_.signal(number);
  for (std::size_t child = 0; child < processes_.size(); ++child)
    if (processes_[child] == process) children_.signal(child, number);
}

void NodeRanks::handle(const std::vector<pollfd>& waits) {
  for (const auto& [child, end] : children_.handle(waits))
    config_.on_exited({Seal{}, job_, processes_[child], end.exit_code, end.signal, ""});
}

}  // namespace grapevine
