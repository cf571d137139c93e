#include "apps/node/node_ranks.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "apps/launch/launch_plan.hpp"
#include "apps/node/node_link.hpp"
#include "net/addresses.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

constexpr char kPrefix[] = "GRAPEVINE_";

// The executable that runs here; tests replace it.
std::string program() {
  const char* other = std::getenv("GRAPEVINE_LAUNCH_PROGRAM");
  if (other != nullptr) return other;
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return ignored ? "grapevine" : self.string();
}

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

Expected<std::string> NodeRanks::head_host(const StartRanks& start) const {
  if (!config_.first_host.empty()) return config_.first_host;
  if (!is_any_host(config_.own_host)) return config_.own_host;
  if (start.count == start.processes) return std::string("127.0.0.1");
  std::string found = own_address_towards(start.other_host);
  if (!found.empty()) return found;
  return Error{Errc::io, "this machine has no address towards '" + start.other_host +
                             "': let the first node listen on one that the others reach"};
}

void NodeRanks::refuse(const StartRanks& start, const Error& why) const {
  for (std::int32_t i = 0; i < start.count; ++i)
    config_.on_exited({Seal{}, start.job, start.first + i, -1, 0, why.message});
}

void NodeRanks::start(const StartRanks& start) {
  kill_all();
  job_ = start.job;
  const auto head = head_host(start);
  if (!head) return refuse(start, head.error());
  std::vector<std::string> arguments = {program(), "train"};
  arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
  for (std::int32_t i = 0; i < start.count; ++i) {
    LaunchPlace place;
    place.rank = start.first + i;
    place.ranks = start.processes;
    place.local_rank = i;
    place.local_ranks = start.count;
    std::vector<std::string> variables = rank_variables(place, {*head, start.port});
    variables.push_back(kJobTokenVariable + ("=" + mac_of(config_.secret, {"job", start.nonce})));
    for (std::string& name : taken_away()) variables.push_back(std::move(name));
    auto child = ChildProcess::start({arguments, variables, false, ""});
    if (child)
      members_.push_back({place.rank, std::move(*child)});
    else
      config_.on_exited({Seal{}, job_, place.rank, -1, 0, child.error().message});
  }
}

void NodeRanks::signal(std::int64_t job, int number) {
  if (job != job_) return;
  for (Member& member : members_) member.child->signal(number);
}

void NodeRanks::add_to(std::vector<pollfd>& waits) const {
  for (const Member& member : members_)
    for (const int descriptor : {member.child->out(), member.child->err(), member.child->end()})
      waits.push_back({descriptor, POLLIN, 0});
}

void NodeRanks::output(std::int32_t process, bool to_err, const std::string& line) const {
  config_.on_output({Seal{}, job_, process, to_err, line});
}

// Descriptors do not block, so that idle ones cost one call each.
void NodeRanks::handle_ready() {
  for (Member& member : members_) {
    const auto on_out = [&](const std::string& line) { output(member.process, false, line); };
    const auto on_err = [&](const std::string& line) { output(member.process, true, line); };
    member.child->read_out(on_out);
    member.child->read_err(on_err);
    const auto end = member.child->reap(on_out, on_err);
    if (!end) continue;
    config_.on_exited({Seal{}, job_, member.process, end->exit_code, end->signal, ""});
    member.child.reset();
  }
  members_.erase(std::remove_if(members_.begin(), members_.end(),
                                [](const Member& member) { return member.child == nullptr; }),
                 members_.end());
}

}  // namespace grapevine
