#include "actors/cluster/dial.hpp"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>

#include "actors/clock_time.hpp"
#include "actors/cluster/secure/stream_scribe.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(2);
constexpr Duration kProbeTimeout = std::chrono::seconds(5);
// For CAF's greeting, once a process listens. If a machine under load is later, dial() tries again.
constexpr Duration kGreetingTimeout = std::chrono::seconds(10);

constexpr char kOtherProgram[] = "what listens there does not answer as this program does";
// Bytes by which a greeting is recognised: the header of CAF's.
constexpr std::size_t kGreetingStart = 32;

// Of the first namespace of process numbers, a constant of Linux: PROC_PID_INIT_INO.
constexpr ino_t kNumbersOfHost = 0xEFFFFFFC;

// Plain words for the errors of CAF whose own texts few users understand.
std::string text_of(const caf::actor_system& system, const caf::error& error) {
  if (error == caf::sec::malformed_basp_message || error == caf::sec::incompatible_versions ||
      error == caf::sec::incompatible_application_ids)
    return kOtherProgram;
  if (error == caf::sec::connection_timeout)
    return "it accepted the connection, but sent no greeting of this program";
  if (error == caf::sec::disconnect_during_handshake)
    return "it accepted the connection, but ended it before a greeting";
  return system.render(error);
}

// CAF names a process by its host's network and its process number: two processes of a host with
// the same number, each in a container, take each other for themselves.
std::string same_number() {
  struct stat own {};
  const bool known = ::stat("/proc/self/ns/pid", &own) == 0;
  if (!known || own.st_ino == kNumbersOfHost) return "";
  return "; if it is a process of another container on this host, with the host's network, give "
         "the containers the host's process numbers (--pid=host, in Kubernetes hostPID: true)";
}

using Found = std::tuple<caf::node_id, caf::strong_actor_ptr, std::set<std::string>>;

// The broker of the middleman answers `message` with what is found.
Expected<Found> ask_for_actor(caf::actor_system& system, const caf::message& message,
                              const DialConfig& config, Duration timeout) {
  auto answered = std::make_shared<std::promise<Expected<Found>>>();
  std::future<Expected<Found>> answer = answered->get_future();
  const auto broker = caf::actor_cast<caf::actor>(
      system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP")));
  const caf::actor asker = system.spawn([=](caf::event_based_actor* self) {
    self->request(broker, timeout, message)
        .then(
            [answered](const caf::node_id& node, const caf::strong_actor_ptr& actor,
                       const std::set<std::string>& interface) {
              answered->set_value(Found{node, actor, interface});
            },
            [answered, self](const caf::error& error) {
              const bool late = error == caf::sec::request_timeout;
              answered->set_value(
                  late ? Error{Errc::timeout, "it accepted the connection and then sent nothing"}
                       : Error{Errc::io, text_of(self->system(), error)});
            });
  });
  while (answer.wait_for(kCancelPoll) != std::future_status::ready) {
    if (!config.cancelled || !config.cancelled()) continue;
    caf::anon_send_exit(asker, caf::exit_reason::user_shutdown);
    return Error{Errc::failed, "asked to stop"};
  }
  return answer.get();
}

// The remaining time of one attempt.
using TimeLeft = std::function<Duration()>;

using StreamPtr = std::unique_ptr<tcp::Stream>;

// Of a listener of CAF's middleman, which greets first.
Expected<StreamPtr> plain_stream(FileDescriptor socket, const DialConfig& config,
                                 const TimeLeft& left) {
  auto greeted = tcp::await_greeting(std::move(socket), std::min(kGreetingTimeout, left()),
                                     config.cancelled, kGreetingStart);
  if (!greeted) return greeted.error();
  const std::vector<std::byte>& first = greeted->first;
  if (tcp::begins_secret_greeting(first.data(), first.size()))
    return Error{Errc::protocol, tcp::kSecretIsMissing};
  if (!BaspGuard(BaspGuard::First::greeting_of_accepting_side).take(first.data(), first.size()))
    return Error{Errc::io, kOtherProgram};
  return std::move(greeted->stream);
}

// No other credentials have streams that hold bytes.
bool uses_tls(const DialConfig& config) {
  return config.credentials && config.credentials->buffers();
}

// A listener with TLS is silent until it is greeted, and ends a connection with another greeting.
// A new connection shows whether it is one.
Error with_tls_explained(Error why, const DialConfig& config, const TimeLeft& left) {
  if (uses_tls(config) || why.code == Errc::protocol || why.code == Errc::failed) return why;
  auto listens =
      tcp::probe(config.host, config.port, std::min(kProbeTimeout, left()), config.cancelled);
  if (!listens || !tcp::answers_with_tls(std::move(listens->socket),
                                         std::min(kProbeTimeout, left()), config.cancelled))
    return why;
  return {Errc::protocol, "it uses TLS and this process does not: give --tls to all or none"};
}

// CAF's own remote_actor() has no credentials, and no guard against what the other side sends.
Expected<Found> find(caf::actor_system& system, const DialConfig& config, const TimeLeft& left) {
  auto listens =
      tcp::probe(config.host, config.port, std::min(kGreetingTimeout, left()), config.cancelled);
  if (!listens) return listens.error();
  auto stream =
      config.credentials
          ? tcp::prove(std::move(listens->socket), tcp::join_address(config.host, config.port),
                       std::min(kGreetingTimeout, left()), config.cancelled, *config.credentials)
          : plain_stream(std::move(listens->socket), config, left);
  if (!stream) return with_tls_explained(stream.error(), config, left);
  const auto scribe = make_stream_scribe(system, *std::move(stream),
                                         {BaspGuard::First::greeting_of_accepting_side,
                                          uses_tls(config), std::make_shared<LogLimits>()});
  if (!scribe) return Error{Errc::io, "no descriptor is free"};
  return ask_for_actor(system, caf::make_message(caf::connect_atom::value, scribe, config.port),
                       config, std::min(kGreetingTimeout, left()));
}

Expected<caf::strong_actor_ptr> dial_once(caf::actor_system& system, const DialConfig& config,
                                          Timestamp deadline,
                                          const std::set<std::string>& interface) {
  const TimeLeft left = [&] {
    return std::max(deadline - clock_time(system.clock()), Duration(kFirstPause));
  };
  auto found = find(system, config, left);
  if (!found) return found.error();
  const auto& [node, actor, has] = *found;
  if (!actor || !system.assignable(has, interface))
    return Error{Errc::protocol,
                 "another version or another program listens there" + same_number()};
  return actor;
}

}  // namespace

Expected<caf::strong_actor_ptr> dial_actor(caf::actor_system& system, const DialConfig& config,
                                           const std::set<std::string>& interface) {
  caf::scoped_actor self{system};  // waits on the system's clock
  const Timestamp deadline = clock_time(system.clock()) + config.timeout;
  Timestamp notice = clock_time(system.clock()) + kFirstNotice;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto found = dial_once(system, config, deadline, interface);
    if (found || found.error().code == Errc::failed || found.error().code == Errc::protocol)
      return found;
    const Timestamp again = clock_time(system.clock()) + pause;
    if (again >= notice) {
      spdlog::warn("waiting for {} at {}: {}", config.name,
                   tcp::join_address(config.host, config.port), found.error().message);
      notice = again + kNextNotice;
    }
    if (again > deadline) return Error{Errc::timeout, found.error().message};
    while (clock_time(system.clock()) < again) {
      if (config.cancelled && config.cancelled()) return Error{Errc::failed, "asked to stop"};
      self->receive(caf::after(std::min(kCancelPoll, pause)) >> [] {});
    }
  }
}

}  // namespace grapevine
