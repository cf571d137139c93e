#include "actors/cluster/secure/stream_doorman.hpp"

#include <atomic>
#include <utility>

#include <caf/all.hpp>

#include "actors/cluster/secure/stream_scribe.hpp"
#include "net/tcp/credentials/stream_acceptor.hpp"

namespace grapevine {
namespace {

class StreamDoorman;

// The doorman as long as it accepts. On the middleman's event loop, like the doorman itself.
struct DoormanLink {
  StreamDoorman* doorman = nullptr;
  std::atomic<int> posted{
      0};  // streams that wait for the event loop; also on the acceptor's thread
};

// So many at a time: further connections end, and their processes dial again.
constexpr int kMostPosted = 256;

class StreamDoorman final : public caf::io::doorman {
 public:
  StreamDoorman(caf::actor_system& system, const SilentConnections::Limits& silence)
      : doorman(caf::io::accept_handle::from_int(next_handle())),
        system_(system),
        silent_(std::make_shared<SilentConnections>(limits_, silence)),
        link_(std::make_shared<DoormanLink>()) {
    link_->doorman = this;
  }
  ~StreamDoorman() override { link_->doorman = nullptr; }

  Expected<void> listen(const std::string& host, std::uint16_t port,
                        std::shared_ptr<const tcp::Credentials> credentials) {
    buffers_ = credentials && credentials->buffers();
    auto acceptor = tcp::StreamAcceptor::listen(host, port, std::move(credentials), "control");
    if (!acceptor) return acceptor.error();
    acceptor_ = *std::move(acceptor);
    port_ = acceptor_->port();
    return {};
  }

  void admit(std::unique_ptr<tcp::Stream> stream) {
    if (detached()) return;
    silent_->make_room(system_.clock().now());
    auto scribe = accept_stream_scribe(
        system_, std::move(stream),
        {BaspGuard::First::greeting_of_dialling_side, buffers_, limits_, silent_});
    if (!scribe) return;
    const auto handle = scribe->hdl();
    parent()->add_scribe(std::move(scribe));
    doorman::new_connection(&middleman_loop(system_), handle);
  }

  // An exception would leave CAF's event loop, and end the process: it ends this connection.
  void admit_guarded(std::unique_ptr<tcp::Stream> stream) noexcept {
    try {
      admit(std::move(stream));
    } catch (...) {
      report_connection_problem("", *limits_, system_.clock().now());
    }
  }

  // The broker has this doorman now.
  void launch() override {
    acceptor_->start(
        [&loop = middleman_loop(system_), link = link_](std::unique_ptr<tcp::Stream> stream) {
          if (link->posted.fetch_add(1) >= kMostPosted) {
            --link->posted;
            return;
          }
          // CAF copies what it posts.
          auto held = std::make_shared<std::unique_ptr<tcp::Stream>>(std::move(stream));
          loop.post([link, held] {
            --link->posted;
            if (link->doorman != nullptr) link->doorman->admit_guarded(std::move(*held));
          });
        });
  }
  bool new_connection() override { return false; }  // of CAF's own acceptors
  void graceful_shutdown() override { detach(&middleman_loop(system_), false); }
  void remove_from_loop() override { acceptor_.reset(); }
  void add_to_loop() override {}
  std::string addr() const override { return ""; }
  std::uint16_t port() const override { return port_; }

 private:
  caf::actor_system& system_;
  const std::shared_ptr<LogLimits> limits_ = std::make_shared<LogLimits>();
  const std::shared_ptr<SilentConnections> silent_;
  const std::shared_ptr<DoormanLink> link_;
  std::unique_ptr<tcp::StreamAcceptor> acceptor_;
  std::uint16_t port_ = 0;
  bool buffers_ = false;  // constant from listen() on
};

}  // namespace

Expected<caf::io::doorman_ptr> make_stream_doorman(
    caf::actor_system& system, const std::string& host, std::uint16_t port,
    std::shared_ptr<const tcp::Credentials> credentials, const SilentConnections::Limits& silence) {
  auto doorman = caf::make_counted<StreamDoorman>(system, silence);
  if (auto listening = doorman->listen(host, port, std::move(credentials)); !listening)
    return listening.error();
  return caf::io::doorman_ptr(std::move(doorman));
}

}  // namespace grapevine
