#include "actors/cluster/dial.hpp"

#include <algorithm>

#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(2);
constexpr Duration kProbePatience = std::chrono::seconds(5);
// For CAF's greeting, once a process listens. If a machine under load is later, dial() tries again.
constexpr Duration kGreetingPatience = std::chrono::seconds(10);

using Found = std::tuple<caf::node_id, caf::strong_actor_ptr, std::set<std::string>>;

Timestamp now_of(caf::actor_system& system) {
  return std::chrono::duration_cast<Duration>(system.clock().now().time_since_epoch());
}

// CAF's own remote_actor() waits without a bound, for the kernel and for the listening process.
// `host`: in numbers, since CAF looks names up without a bound.
Expected<Found> connect(caf::actor_system& system, const DialConfig& config,
                        const std::string& host, Duration left) {
  auto answered = std::make_shared<std::promise<Expected<Found>>>();
  std::future<Expected<Found>> answer = answered->get_future();
  const auto middleman = system.middleman().actor_handle();
  const Duration patience = std::min(kGreetingPatience, left);
  const caf::actor asker = system.spawn([=, port = config.port](caf::event_based_actor* self) {
    self->request(middleman, patience, caf::connect_atom::value, host, port)
        .then(
            [answered](const caf::node_id& node, const caf::strong_actor_ptr& actor,
                       const std::set<std::string>& interface) {
              answered->set_value(Found{node, actor, interface});
            },
            [answered, self](const caf::error& error) {
              const bool late = error == caf::sec::request_timeout;
              answered->set_value(
                  late ? Error{Errc::timeout, "it accepted the connection and then sent nothing"}
                       : Error{Errc::io, self->system().render(error)});
            });
  });
  while (answer.wait_for(kCancelPoll) != std::future_status::ready) {
    if (!config.cancelled || !config.cancelled()) continue;
    caf::anon_send_exit(asker, caf::exit_reason::user_shutdown);
    return Error{Errc::failed, "asked to stop"};
  }
  return answer.get();
}

Expected<caf::strong_actor_ptr> dial_once(caf::actor_system& system, const DialConfig& config,
                                          Timestamp deadline,
                                          const std::set<std::string>& interface) {
  const auto left = [&] { return std::max(deadline - now_of(system), Duration(kFirstPause)); };
  const Duration patience = std::min(kProbePatience, left());
  auto listens = tcp::probe(config.host, config.port, patience, config.cancelled);
  if (!listens) return listens.error();
  if (config.probes) config.probes->push_back(std::move(listens->socket));
  // CAF forgets the zone of an address.
  const bool has_zone = listens->host.find('%') != std::string::npos;
  auto found = connect(system, config, has_zone ? config.host : listens->host, left());
  if (!found) return found.error();
  const auto& [node, actor, has] = *found;
  if (!actor || !system.assignable(has, interface))
    return Error{Errc::protocol, "another version or another program listens there"};
  return actor;
}

}  // namespace

Expected<caf::strong_actor_ptr> dial_actor(caf::actor_system& system, const DialConfig& config,
                                           const std::set<std::string>& interface) {
  caf::scoped_actor self{system};  // waits on the system's clock
  const Timestamp deadline = now_of(system) + config.patience;
  Timestamp notice = now_of(system) + kFirstNotice;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto found = dial_once(system, config, deadline, interface);
    if (found || found.error().code == Errc::failed || found.error().code == Errc::protocol)
      return found;
    const Timestamp again = now_of(system) + pause;
    if (again >= notice) {
      spdlog::warn("waiting for {} at {}: {}", config.name,
                   tcp::join_address(config.host, config.port), found.error().message);
      notice = again + kNextNotice;
    }
    if (again > deadline) return Error{Errc::timeout, found.error().message};
    while (now_of(system) < again) {
      if (config.cancelled && config.cancelled()) return Error{Errc::failed, "asked to stop"};
      self->receive(caf::after(std::min(kCancelPoll, pause)) >> [] {});
    }
  }
}

}  // namespace grapevine
