#include "apps/node/node_link.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <spdlog/spdlog.h>
#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/node_protocol.hpp"
#include "actors/run/scheduling.hpp"
#include "apps/console/read_up_to.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

constexpr Duration kHeartbeat = std::chrono::milliseconds(500);
constexpr std::size_t kLongestSecret = 4096;

Expected<std::string> checked_secret(std::string secret, const std::string& where) {
  while (!secret.empty() && std::isspace(static_cast<unsigned char>(secret.back())) != 0)
    secret.pop_back();
  if (secret.empty()) return bad_input(where + " is empty: put a long random word there");
  if (secret.size() > kLongestSecret || secret.find('\n') != std::string::npos)
    return bad_input(where + ": expected one line of at most " + std::to_string(kLongestSecret) +
                     " characters");
  return secret;
}

}  // namespace

std::string text_of(const ListenAddress& address) {
  return tcp::join_address(address.host, address.port);
}

bool is_any_host(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

Expected<std::string> read_secret(const std::string& path) {
  if (path.empty()) {
    const char* variable = std::getenv(kClusterSecretVariable);
    if (variable == nullptr) return std::string();
    return checked_secret(variable, kClusterSecretVariable);
  }
  std::error_code ignored;
  std::ifstream file(path);
  if (!file || std::filesystem::is_directory(path, ignored))
    return bad_input("--secret-file " + path + ": cannot be read: give a file with one line");
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & S_IROTH) != 0)
    spdlog::warn("--secret-file {}: every user of this machine can read it: chmod o-r {}", path,
                 path);
  // With the end of its line.
  return checked_secret(read_up_to(file, kLongestSecret + 1), "--secret-file " + path);
}

Error no_first_node(const ListenAddress& first, const Error& why) {
  const std::string what = "cannot reach the first node at " + text_of(first) + ": " + why.message;
  if (why.code == Errc::protocol) return bad_input(what);  // time would change nothing
  return {why.code, what + ": does a node listen there, and is the port open?"};
}

void configure_for_nodes(caf::actor_system_config& config, Duration silence) {
  config.load<caf::io::middleman>();
  configure_scheduler(config, 2);
  config.set("middleman.heartbeat-interval", caf::timespan(kHeartbeat));
  config.set("middleman.connection-timeout", caf::timespan(silence));
  config.add_message_type<Greet>("grapevine::Greet");
  config.add_message_type<Greeting>("grapevine::Greeting");
  config.add_message_type<StartRanks>("grapevine::StartRanks");
  config.add_message_type<SignalRanks>("grapevine::SignalRanks");
  config.add_message_type<PoolClosed>("grapevine::PoolClosed");
  config.add_message_type<JobOutput>("grapevine::JobOutput");
  config.add_message_type<JobEnded>("grapevine::JobEnded");
  config.add_message_type<JobEndHeard>("grapevine::JobEndHeard");
  config.add_message_type<Enlist>("grapevine::Enlist");
  config.add_message_type<Enlisted>("grapevine::Enlisted");
  config.add_message_type<LeavePool>("grapevine::LeavePool");
  config.add_message_type<Left>("grapevine::Left");
  config.add_message_type<RankOutput>("grapevine::RankOutput");
  config.add_message_type<RankExited>("grapevine::RankExited");
  config.add_message_type<SubmitJob>("grapevine::SubmitJob");
  config.add_message_type<JobAccepted>("grapevine::JobAccepted");
  config.add_message_type<SignalJob>("grapevine::SignalJob");
  config.add_message_type<OutputWritten>("grapevine::OutputWritten");
  config.add_message_type<AskControl>("grapevine::AskControl");
  config.add_message_type<ControlPlace>("grapevine::ControlPlace");
}

}  // namespace grapevine
