#include "net/shm/shm.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "net/process_links.hpp"
#include "net/rank_router.hpp"
#include "net/shm/shm_wire.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace shm {
namespace {

constexpr char kScheme[] = "shm:";
// How long a process that is too busy to accept is waited for.
constexpr Duration kBusyTimeout = std::chrono::seconds(5);
constexpr Duration kBusyPause = std::chrono::milliseconds(10);

std::string seconds(Duration d) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

// "shm:<host key>:<name of the socket>".
std::string join_address(const std::string& key, const std::string& name) {
  return kScheme + key + ":" + name;
}

// The name of the socket. Errors (bad_input): an address of another kind or host.
Expected<std::string> name_in(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const std::size_t start = sizeof kScheme - 1;
  if (address.rfind(kScheme, 0) != 0 || colon == std::string::npos || colon < start)
    return bad_input("\"" + address + "\" is no address of shared memory");
  if (address.substr(start, colon - start) != shm_host_key())
    return bad_input(
        "it is on another host, in another network namespace or of another user: use "
        "--transport auto or tcp");
  return address.substr(colon + 1);
}

std::vector<std::string> names_of(const Placement& placement) {
  std::vector<std::string> names;
  for (std::int32_t p = 0; p < placement.processes(); ++p)
    names.push_back(
        fmt::format("process {} (host {})", p, placement.host_of[static_cast<std::size_t>(p)]));
  return names;
}

class ShmTransport final : public RemoteTransport {
 public:
  ShmTransport(std::string address, std::unique_ptr<shm::ShmWire> wire)
      : address_(std::move(address)), wire_(std::move(wire)) {}
  ~ShmTransport() override { wire_.reset(); }

  std::string address() const override { return address_; }
  using RemoteTransport::connect;
  Expected<void> connect(const std::vector<std::string>& addresses, const Placement& placement,
                         Duration timeout, const ConnectOptions& options) override;
  void process_down(std::int32_t process) override {
    if (checked(process)) wire_->drop(process);
  }
  void expect_process(std::int32_t process, const std::string& /*host*/,
                      const std::string& /*address*/) override {
    if (checked(process)) wire_->expect(process);
  }
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override;
  void detach(Rank rank) override {
    router().detach(rank);
    post();
  }
  void send(Envelope envelope) override {
    router().send(std::move(envelope));
    post();
  }
  TransportCounters counters(Rank rank) const override { return router().counters(rank); }
  bool by_reference(Rank from, Rank to) const override { return router().by_reference(from, to); }
  std::uint64_t queued_bytes() const override {
    return wire_ == nullptr ? 0 : wire_->queued_bytes();
  }
  bool is_up(std::int32_t process) const override { return router().is_up(process); }
  std::int32_t world_size() const override {
    return router_ == nullptr ? 0 : router_->placement().world_size();
  }

 private:
  RankRouter& router() const {
    GRAPEVINE_CHECK(router_ != nullptr, "a transport is used before connect()");
    return *router_;
  }
  // False: nothing is to be done for the process.
  bool checked(std::int32_t process) const;
  void post() {
    if (router_->has_outgoing() && wire_ != nullptr) wire_->post();
  }
  Expected<void> dial_others(const std::vector<std::string>& addresses, const shm::ShmLinks& links,
                             Clock::time_point deadline, Duration timeout,
                             const ConnectOptions& options);

  const std::string address_;
  std::shared_ptr<RankRouter> router_;  // null until connect(); constant then
  std::unique_ptr<shm::ShmWire> wire_;  // null after a connect() that failed
};

bool ShmTransport::checked(std::int32_t process) const {
  const Placement& placement = router().placement();
  GRAPEVINE_CHECK(process >= 0 && process < placement.processes(), "process ", process);
  return process != placement.own_process && wire_ != nullptr;
}

Expected<void> ShmTransport::connect(const std::vector<std::string>& addresses,
                                     const Placement& placement, Duration timeout,
                                     const ConnectOptions& options) {
  GRAPEVINE_CHECK(router_ == nullptr && wire_ != nullptr, "connect() is for once");
  Expected<void> result = check_processes(addresses, placement);
  if (!result) return result;
  const Clock::time_point deadline = Clock::now() + timeout;
  auto router = std::make_shared<RankRouter>(placement);
  for (const std::int32_t process : options.absent) router->process_absent(process);
  const auto links = std::make_shared<shm::ShmLinks>(placement, names_of(placement), options.token,
                                                     options.absent);
  wire_->start(router, links);
  router_ = std::move(router);
  result = dial_others(addresses, *links, deadline, timeout, options);
  if (result)
    result = links->wait_connected(deadline, seconds(timeout), options.cancelled, options.lost);
  if (!result) wire_.reset();
  return result;
}

Expected<void> ShmTransport::dial_others(const std::vector<std::string>& addresses,
                                         const shm::ShmLinks& links, Clock::time_point deadline,
                                         Duration timeout, const ConnectOptions& options) {
  const Placement& placement = router().placement();
  const std::int32_t end = options.joins ? placement.processes() : placement.own_process;
  for (std::int32_t p = 0; p < end; ++p) {
    if (p == placement.own_process || options.is_absent(p)) continue;
    const auto failed = [&](const Error& e) {
      const std::string within = e.code == Errc::timeout ? " within " + seconds(timeout) : "";
      return Error{e.code, "cannot reach " + links.name(p) + within + ": " + e.message};
    };
    const Expected<std::string> name = name_in(addresses[static_cast<std::size_t>(p)]);
    if (!name) return failed(name.error());
    auto parts =
        shm::dial(*name, links.own(), p, deadline, options.cancelled_or_lost(p), options.joins);
    if (!parts && options.is_lost(p)) {
      router().process_absent(p);
      continue;
    }
    if (!parts) return failed(parts.error());
    wire_->adopt(*std::move(parts), p);
  }
  return {};
}

Expected<void> ShmTransport::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  if (router_ == nullptr || wire_ == nullptr)
    return bad_input(fmt::format("cannot attach rank {} before connect() succeeds", rank));
  return router_->attach(rank, std::move(inbox));
}

}  // namespace
}  // namespace shm

std::string shm_host_key() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat network {};
  struct stat user {};
  if (!(file >> boot) || ::stat("/proc/self/ns/net", &network) != 0 ||
      ::stat("/proc/self/ns/user", &user) != 0)
    return "";
  return fmt::format("{}/{}/{}/{}", boot, network.st_ino, user.st_ino, ::geteuid());
}

Expected<bool> reaches_by_shm(const std::string& address) {
  // It has been read before, for the address of this process.
  if (shm_host_key().empty()) return Error{Errc::io, shm::kNoDescriptors};
  const Expected<std::string> name = shm::name_in(address);
  if (!name) return false;
  for (const auto deadline = shm::Clock::now() + shm::kBusyTimeout;;) {
    const auto socket = shm::connect_to(*name);
    if (socket) return shm::is_same_user(socket->get());
    const Errc code = socket.error().code;
    if (code == Errc::peer_down) return false;
    if (code != Errc::timeout || shm::Clock::now() >= deadline) return socket.error();
    std::this_thread::sleep_for(shm::kBusyPause);
  }
}

Expected<std::unique_ptr<RemoteTransport>> make_shm_transport(const ShmOptions& options) {
  const std::string key = shm_host_key();
  if (key.empty())
    return Error{Errc::io,
                 "shared memory needs /proc, to know the processes of this host: mount "
                 "it, or use --transport tcp"};
  const std::string name = "grapevine-" + random_hex(kNonceBytes);
  // Makes the parts of a link once, before another process depends on it: an error is found here.
  const Expected<shm::Ends> ends = shm::make_ends();
  if (!ends) return ends.error();
  auto wire = shm::ShmWire::listen(name, options);
  if (!wire)
    return Error{wire.error().code, "this process cannot use Unix-domain sockets: " +
                                        wire.error().message + "; use --transport tcp"};
  return std::unique_ptr<RemoteTransport>(
      std::make_unique<shm::ShmTransport>(shm::join_address(key, name), *std::move(wire)));
}

}  // namespace grapevine
