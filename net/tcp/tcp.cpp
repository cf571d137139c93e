#include "net/tcp/tcp.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "net/process_links.hpp"
#include "net/rank_router.hpp"
#include "net/tcp/tcp_wire.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {
namespace {

using tcp::Clock;

std::string seconds(Duration d) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

std::string reachable_host(const std::string& host) {
  const bool all = host.empty() || host == "0.0.0.0" || host == "::";
  return all ? tcp::primary_address(host == "::") : host;
}

// The names of the processes in errors.
std::vector<std::string> names_of(const Placement& placement,
                                  const std::vector<std::string>& addresses) {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < addresses.size(); ++p)
    names.push_back(
        fmt::format("process {} (host {}, address {})", p, placement.host_of[p], addresses[p]));
  return names;
}

class TcpTransport final : public RemoteTransport {
 public:
  TcpTransport(const TcpOptions& options, std::unique_ptr<tcp::Wire> wire)
      : address_(tcp::join_address(reachable_host(options.host), wire->port())),
        tls_(options.tls),
        wire_(std::move(wire)) {}

  std::string address() const override { return address_; }
  using RemoteTransport::connect;
  Expected<void> connect(const std::vector<std::string>& addresses, const Placement& placement,
                         Duration timeout, const ConnectOptions& options) override;
  void process_down(std::int32_t process) override;
  void expect_process(std::int32_t process, const std::string& host,
                      const std::string& address) override;
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override;
  void detach(Rank rank) override;
  void send(Envelope envelope) override;
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
  const Placement& placement() const { return router().placement(); }
  void send_outgoing();
  Expected<void> dial_others(const std::vector<std::string>& addresses,
                             const std::vector<std::string>& names, Clock::time_point deadline,
                             Duration timeout, const ConnectOptions& options);

  const std::string address_;
  const std::shared_ptr<const tcp::TlsContext> tls_;  // null: without encryption
  // Null until connect(); constant then. What it holds outlives the event loop that delivers to it.
  std::shared_ptr<RankRouter> router_;
  std::unique_ptr<tcp::Wire> wire_;  // null after a connect() that failed
};

Expected<void> TcpTransport::connect(const std::vector<std::string>& addresses,
                                     const Placement& placement, Duration timeout,
                                     const ConnectOptions& options) {
  GRAPEVINE_CHECK(router_ == nullptr && wire_ != nullptr, "connect() is for once");
  Expected<void> result = check_processes(addresses, placement);
  if (!result) return result;
  const Clock::time_point deadline = Clock::now() + timeout;
  const std::vector<std::string> names = names_of(placement, addresses);
  auto router = std::make_shared<RankRouter>(placement);
  for (const std::int32_t process : options.absent) router->process_absent(process);
  wire_->start(router, names, options.token, options.absent);
  router_ = std::move(router);
  result = dial_others(addresses, names, deadline, timeout, options);
  if (result)
    result = wire_->wait_connected(deadline, seconds(timeout), options.cancelled, options.lost);
  if (!result) wire_.reset();
  return result;
}

Expected<void> TcpTransport::dial_others(const std::vector<std::string>& addresses,
                                         const std::vector<std::string>& names,
                                         Clock::time_point deadline, Duration timeout,
                                         const ConnectOptions& options) {
  const LinkIdentity own{placement().own_process, placement_digest(placement()), options.token};
  const std::int32_t end = options.joins ? placement().processes() : placement().own_process;
  for (std::int32_t p = 0; p < end; ++p) {
    if (p == placement().own_process || options.is_absent(p)) continue;
    const auto i = static_cast<std::size_t>(p);
    Expected<std::unique_ptr<tcp::Stream>> stream =
        tcp::dial(addresses[i], own, p, deadline, options.cancelled_or_lost(p), options.joins,
                  tls_.get(), placement().host_of[i]);
    if (!stream && options.is_lost(p)) {
      router().process_absent(p);
      continue;
    }
    if (!stream) {
      const Error& e = stream.error();
      const std::string within = e.code == Errc::timeout ? " within " + seconds(timeout) : "";
      return Error{e.code, "cannot reach " + names[i] + within + ": " + e.message};
    }
    wire_->adopt(std::move(*stream), p);
  }
  return {};
}

Expected<void> TcpTransport::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  if (router_ == nullptr || wire_ == nullptr)
    return bad_input(fmt::format("cannot attach rank {} before connect() succeeds", rank));
  return router_->attach(rank, std::move(inbox));
}

void TcpTransport::detach(Rank rank) {
  router().detach(rank);
  send_outgoing();
}

void TcpTransport::send(Envelope envelope) {
  router().send(std::move(envelope));
  send_outgoing();
}

// Nothing is outgoing after a connect() that failed: no rank could attach.
void TcpTransport::send_outgoing() {
  if (router_->has_outgoing()) wire_->send();
}

void TcpTransport::expect_process(std::int32_t process, const std::string& /*host*/,
                                  const std::string& /*address*/) {
  GRAPEVINE_CHECK(process >= 0 && process < placement().processes(), "process ", process);
  if (process != placement().own_process && wire_ != nullptr) wire_->expect(process);
}

void TcpTransport::process_down(std::int32_t process) {
  GRAPEVINE_CHECK(process >= 0 && process < placement().processes(), "process ", process);
  if (process != placement().own_process && wire_ != nullptr) wire_->drop(process);
}

}  // namespace

Expected<std::unique_ptr<RemoteTransport>> make_tcp_transport(const TcpOptions& options) {
  Expected<std::unique_ptr<tcp::Wire>> wire = tcp::Wire::listen(options);
  if (!wire) return wire.error();
  return std::unique_ptr<RemoteTransport>(
      std::make_unique<TcpTransport>(options, std::move(*wire)));
}

}  // namespace grapevine
