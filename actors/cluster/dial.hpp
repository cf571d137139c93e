// Finding and asking an actor of another process, with a bound on every wait, which can be
// cancelled.
#pragma once
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <caf/all.hpp>

#include "messages/expected.hpp"
#include "messages/time.hpp"
#include "net/cancelled.hpp"
#include "net/tcp/credentials/credentials.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {

// A job that is started by hand needs a moment; a process that is missing is reported in time.
inline constexpr Duration kFirstNotice = std::chrono::seconds(3);
inline constexpr Duration kNextNotice = std::chrono::seconds(30);

// How long an answer may still be read after the end of its sender.
inline constexpr Duration kLastAnswerGrace = std::chrono::milliseconds(500);
using LastAnswerDue = caf::atom_constant<caf::atom("answerdue")>;

// Sends `message` and waits for a Result. Errors: timeout; peer_down where the receiver ends or
// answers with an error; failed where `cancelled`.
template <class Result, class Handle, class Message>
Expected<Result> ask_actor(caf::actor_system& system, const Handle& receiver, Duration timeout,
                           Message message, const Cancelled& cancelled) {
  auto answered = std::make_shared<std::promise<Expected<Result>>>();
  std::future<Expected<Result>> answer = answered->get_future();
  const caf::actor asker = system.spawn([answered, receiver, timeout, message = std::move(message)](
                                            caf::event_based_actor* self) mutable -> caf::behavior {
    // Once: nothing else is handled after quit().
    const auto end = [answered, self](Expected<Result> result) {
      answered->set_value(std::move(result));
      self->quit();
    };
    // CAF fails no request to a receiver of another process that ends.
    self->set_down_handler([self](const caf::down_msg&) {
      self->delayed_send(self, kLastAnswerGrace, LastAnswerDue::value);
    });
    self->monitor(receiver);
    self->request(receiver, timeout, std::move(message))
        .then([end](Result& result) { end(std::move(result)); },
              [end, self](const caf::error& error) {
                const bool late = error == caf::sec::request_timeout;
                end(Error{late ? Errc::timeout : Errc::peer_down, self->system().render(error)});
              });
    return {[end](LastAnswerDue) {
      end(Error{Errc::peer_down, "it ended, or the connection to it was lost"});
    }};
  });
  // The request has a timeout of its own, but where the system is about to end.
  while (answer.wait_for(kCancelPoll) != std::future_status::ready) {
    if (!cancelled || !cancelled()) continue;
    caf::anon_send_exit(asker, caf::exit_reason::user_shutdown);
    return Error{Errc::failed, "asked to stop"};
  }
  return answer.get();
}

struct DialConfig {
  std::string name;  // of the dialled process, for the log: "process 0"
  std::string host;
  std::uint16_t port = 0;
  Duration timeout{0};
  Cancelled cancelled;
  std::shared_ptr<const tcp::Credentials> credentials = nullptr;  // null: none
};

// The actor that is published there, with the interface `interface`. Tries again, ever more rarely,
// while no process listens or the name has no address; after three seconds a warning says so,
// then one every half minute. Errors: timeout with the last reason; protocol: another version or
// program answers there, only one side uses TLS or has a secret, or credentials are not accepted;
// failed: cancelled.
Expected<caf::strong_actor_ptr> dial_actor(caf::actor_system& system, const DialConfig& config,
                                           const std::set<std::string>& interface);

template <class Handle>
Expected<Handle> dial(caf::actor_system& system, const DialConfig& config) {
  auto found = dial_actor(system, config, system.message_types<Handle>());
  if (!found) return found.error();
  return caf::actor_cast<Handle>(*found);
}

}  // namespace grapevine
