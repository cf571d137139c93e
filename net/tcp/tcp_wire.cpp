#include "net/tcp/tcp_wire.hpp"

#include <spdlog/spdlog.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/io/middleman.hpp>
#include <caf/send.hpp>
#include <mutex>
#include <thread>
#include <utility>

#include "net/tcp/tcp_broker.hpp"
#include "net/tcp/tcp_links.hpp"

namespace grapevine::tcp {
namespace {

// For an event loop to end, beyond the time for flushing.
constexpr Clock::duration kFinishMargin = std::chrono::seconds(5);

// Threads that sleep when idle: no work stealing, no deserialization workers (messages never go
// through CAF's own protocol).
struct Config : caf::actor_system_config {
  Config() {
    load<caf::io::middleman>();
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", 1u);
    set("middleman.workers", 0u);
    set("middleman.attach-utility-actors", true);
  }
};

// CAF keeps the logger of the system in which a thread last spawned something in a variable of that
// thread, and a system's destructor waits until no thread holds its logger any more. A thread that
// ends lets go: so the transport may be destroyed on another thread than it was made on, and a
// system that the caller has keeps its place.
template <class F>
void on_a_thread_that_ends(F f) {
  std::thread(std::move(f)).join();
}

}  // namespace

struct Wire::Impl {
  explicit Impl(const TcpOptions& options) : shared(std::make_shared<Shared>(options)) {}
  ~Impl() {
    broker = nullptr;
    on_a_thread_that_ends([this] { system.reset(); });
  }

  Expected<void> listen();

  Config config;
  const std::shared_ptr<Shared> shared;
  std::unique_ptr<Broker> state;  // outlives the event loop, which ends with `system`
  std::unique_ptr<caf::actor_system> system;
  caf::actor broker;
  std::uint16_t port = 0;
};

Expected<void> Wire::Impl::listen() {
  const TcpOptions& options = shared->options;
  system = std::make_unique<caf::actor_system>(config);
  caf::io::middleman& middleman = system->middleman();
  auto doorman = middleman.backend().new_tcp_doorman(options.port, options.host.c_str(), true);
  if (!doorman)
    return Error{Errc::io, "cannot listen on " + join_address(options.host, options.port) +
                               ": it is no address of this host, or the port is taken"};
  port = (*doorman)->port();
  state = std::make_unique<Broker>(shared, std::move(*doorman));
  broker = middleman.spawn_broker(
      [state = state.get()](caf::io::broker* self) { return state->run(self); });
  return {};
}

Expected<std::unique_ptr<Wire>> Wire::listen(const TcpOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  Expected<void> listening;
  on_a_thread_that_ends([&] { listening = impl->listen(); });
  if (!listening) return listening.error();
  return std::unique_ptr<Wire>(new Wire(std::move(impl)));
}

Wire::Wire(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Wire::~Wire() {
  caf::anon_send(impl_->broker, FinishAtom::value);
  Shared& shared = *impl_->shared;
  std::unique_lock<std::mutex> lock(shared.mutex);
  const bool finished = shared.changed.wait_for(lock, shared.options.flush_limit + kFinishMargin,
                                                [&] { return shared.finished; });
  lock.unlock();
  if (finished) return;
  spdlog::error("tcp: the event loop does not end; its thread is abandoned");
  static_cast<void>(impl_.release());
}

std::uint16_t Wire::port() const { return impl_->port; }

void Wire::start(std::shared_ptr<RankRouter> router, std::vector<std::string> names,
                 const JobToken& token, const std::vector<std::int32_t>& absent) {
  Shared& shared = *impl_->shared;
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    shared.links = std::make_shared<Links>(router->placement(), std::move(names), token, absent);
    shared.router = std::move(router);
  }
  caf::anon_send(impl_->broker, StartAtom::value);
}

void Wire::adopt(FileDescriptor socket, std::int32_t process) {
  caf::anon_send(impl_->broker, AdoptAtom::value, socket.release(), process);
}

Expected<void> Wire::wait_connected(Clock::time_point deadline, const std::string& patience,
                                    const Cancelled& cancelled) {
  std::shared_ptr<Links> links;
  {
    const std::lock_guard<std::mutex> lock(impl_->shared->mutex);
    links = impl_->shared->links;
  }
  return links->wait_connected(deadline, patience, cancelled);
}

void Wire::wake() {
  if (!impl_->shared->woken.exchange(true)) caf::anon_send(impl_->broker, WakeAtom::value);
}

void Wire::expect(std::int32_t process) {
  caf::anon_send(impl_->broker, ExpectAtom::value, process);
}

void Wire::drop(std::int32_t process) { caf::anon_send(impl_->broker, DropAtom::value, process); }

}  // namespace grapevine::tcp
