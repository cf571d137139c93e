#include "actors/cluster/secure/plain_doorman.hpp"

#include <fcntl.h>

#include <memory>
#include <utility>

#include <caf/all.hpp>
#include <caf/io/network/doorman_impl.hpp>

#include "actors/cluster/secure/stream_scribe.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

// On the middleman's event loop.
class PlainDoorman final : public caf::io::network::doorman_impl {
 public:
  PlainDoorman(caf::actor_system& system, caf::io::network::native_socket socket,
               const SilentConnections::Limits& silence)
      : doorman_impl(middleman_loop(system), socket),
        system_(system),
        silent_(std::make_shared<SilentConnections>(limits_, silence)) {}

  // An exception would leave CAF's event loop, and end the process: it ends this connection.
  bool new_connection() override {
    try {
      return accept();
    } catch (...) {
      report_connection_problem("", *limits_, system_.clock().now());
      return true;
    }
  }

 private:
  bool accept() {
    FileDescriptor socket(acceptor_.accepted_socket());
    if (detached()) return false;
    ::fcntl(socket.get(), F_SETFD, FD_CLOEXEC);
    silent_->make_room(system_.clock().now());
    auto scribe = accept_stream_scribe(
        system_, tcp::make_plain_stream(std::move(socket)),
        {BaspGuard::First::greeting_of_dialling_side, /*buffers=*/false, limits_, silent_});
    if (!scribe) return true;
    const auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    return doorman::new_connection(&middleman_loop(system_), handle);
  }

  caf::actor_system& system_;
  const std::shared_ptr<LogLimits> limits_ = std::make_shared<LogLimits>();
  const std::shared_ptr<SilentConnections> silent_;
};

}  // namespace

Expected<caf::io::doorman_ptr> make_plain_doorman(caf::actor_system& system,
                                                  const std::string& host, std::uint16_t port,
                                                  const SilentConnections::Limits& silence) {
  // An earlier process leaves connections behind that would keep the port for a minute.
  const bool reuse = true;
  const auto socket =
      caf::io::network::new_tcp_acceptor_impl(port, host.empty() ? nullptr : host.c_str(), reuse);
  if (!socket) return Error{Errc::io, "the system refuses"};
  return caf::io::doorman_ptr(caf::make_counted<PlainDoorman>(system, *socket, silence));
}

}  // namespace grapevine
