#ifdef GRAPEVINE_UCX
// Links to the other processes: hellos, and processes that return.
//
// One end of a link connects, and the other makes its endpoint once the hello of the first has
// arrived. UCX 1.13 ends a process by an assertion where the process dies that has asked it to
// connect, and has not read the answer. Therefore those that stay connect to one that joins, and
// process 0, which has the supervisor, connects to all others.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "net/ucx/ucx_engine_parts.hpp"

namespace grapevine::ucx {
namespace {

constexpr std::size_t kMaxEarlyHellos = 4096;  // unauthenticated hellos cannot fill the memory
constexpr std::chrono::milliseconds kHelloInterval{200};

}  // namespace

Expected<void> Engine::connect(const std::vector<std::string>& addresses,
                               const Placement& placement, const ConnectOptions& options) {
  placement_ = placement;
  limits_.world_size = placement.world_size();
  links_.resize(addresses.size());
  for (std::int32_t p = 0; p < placement.processes(); ++p) {
    if (p == placement.own_process || options.is_absent(p)) continue;
    const auto place = static_cast<std::size_t>(p);
    Expected<std::unique_ptr<Link>> link = make_link(p, addresses[place]);
    if (!link) return link.error();
    links_[place] = *std::move(link);
    if (options.joins || p < placement.own_process) continue;
    if (const Expected<void> opened = open_link(*links_[place]); !opened) return opened;
  }
  for (const Prefix& hello : std::exchange(early_hellos_, {})) take_hello(hello);
  return {};
}

Expected<std::unique_ptr<Engine::Link>> Engine::make_link(std::int32_t process,
                                                          const std::string& address) {
  const auto& hosts = placement_.host_of;
  auto link = std::make_unique<Link>();
  link->engine = this;
  link->process = process;
  link->host = hosts[static_cast<std::size_t>(process)];
  link->same_host = link->host == hosts[static_cast<std::size_t>(placement_.own_process)];
  Expected<Address> peer = unpack_address(address);
  if (!peer)
    return Error{peer.error().code,
                 "cannot connect to " + link->name() + ": " + peer.error().message};
  link->peer = *std::move(peer);
  return link;
}

Expected<void> Engine::open_link(Link& link) {
  const std::string& worker = link.same_host ? link.peer.any : link.peer.network;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(worker.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_endpoint_error, &link};
  const ucs_status_t status = ucp_ep_create(worker_->handle(), &params, &link.endpoint);
  if (status != UCS_OK) {
    link.open = false;
    link.why =
        std::string(ucs_status_string(status)) + ": check the devices and transports given to UCX";
    return Error{Errc::io, "cannot connect to " + link.name() + ": " + link.why};
  }
  send_bare(link, Kind::hello);
  greets_ = true;
  return {};
}

// A hello is lost where those of another program fill the place of early ones.
void Engine::repeat_hellos() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_hello_ < kHelloInterval) return;
  last_hello_ = now;
  greets_ = false;
  for (const auto& link : links_) {
    if (link == nullptr || !link->open || link->endpoint == nullptr || link->acknowledged) continue;
    greets_ = true;
    guard(link.get(), [&] { send_bare(*link, Kind::hello); });
  }
}

bool Engine::skip(std::int32_t process) {
  Link* const link = links_[static_cast<std::size_t>(process)].get();
  if (link == nullptr || link->is_connected()) return false;
  if (!std::exchange(link->skipped, true)) give_up(*link);
  return true;
}

bool Engine::connected() const {
  return std::none_of(links_.begin(), links_.end(),
                      [](const auto& link) { return link != nullptr && link->is_awaited(); });
}

bool Engine::connect_failed() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) {
    return link != nullptr && !link->open && link->is_awaited();
  });
}

std::string Engine::unconnected() const {
  const Link* missing = nullptr;
  for (const auto& link : links_) {
    if (link == nullptr || !link->is_awaited()) continue;
    if (missing == nullptr || (missing->open && !link->open)) missing = link.get();
  }
  GRAPEVINE_CHECK(missing != nullptr, "unconnected() of a connected transport");
  if (!missing->open) return missing->name() + ": " + missing->why;
  return missing->name() + ": " +
         (missing->hello_received ? "it does not answer" : "no hello arrived");
}

// The link of a process that knows its own token; null otherwise.
Engine::Link* Engine::sender_of(const Prefix& prefix) {
  Link* link = nullptr;
  if (prefix.process >= 0 && prefix.process < static_cast<std::int32_t>(links_.size()))
    link = links_[static_cast<std::size_t>(prefix.process)].get();
  if (link != nullptr && link->peer.token == prefix.token) return link;
  report_refused(
      fmt::format("dropped a message of a process outside this job (process {})", prefix.process));
  return nullptr;
}

void Engine::take_hello(const Prefix& hello) {
  if (links_.empty()) {  // it has our address, we do not have its yet
    if (early_hellos_.size() < kMaxEarlyHellos) early_hellos_.push_back(hello);
    return;
  }
  if (saying_goodbye_) return;  // it would wait for another goodbye
  Link* link = sender_of(hello);
  if (link == nullptr || !link->open || std::exchange(link->hello_received, true)) return;
  if (std::exchange(link->expected, false))
    events_.emplace_back(ProcessBack{link->process});
  else
    to_answer_.push_back(link);
}

// Outside of callbacks.
void Engine::answer_hellos() {
  for (Link* link : std::exchange(to_answer_, {})) {
    guard(link, [&] {
      if (link->open && (link->endpoint != nullptr || open_link(*link)))
        send_bare(*link, Kind::hello_ack);
    });
  }
}

// The link of the lost process stays as long as UCX may know it. Messages of the lost process are
// none of the new link's: its token is another. The run may have given up an earlier process that
// was to return, and expect another one.
void Engine::expect(std::int32_t process, const std::string& host, const std::string& address) {
  // After our goodbye it would wait for another one.
  if (links_.empty() || saying_goodbye_) return;
  placement_.host_of[static_cast<std::size_t>(process)] = host;
  Expected<std::unique_ptr<Link>> link = make_link(process, address);
  auto& place = links_[static_cast<std::size_t>(process)];
  if (!link) return spdlog::warn("ucx: a process cannot return: {}", link.error().message);
  if (place != nullptr && place->open &&
      (!place->expected || place->peer.token == (*link)->peer.token))
    return;
  if (place != nullptr) {
    give_up(*place);
    former_.push_back(std::move(place));
  }
  place = *std::move(link);
  place->expected = place->returns = true;
  guard(place.get(), [&] {
    if (const Expected<void> opened = open_link(*place); !opened)
      spdlog::warn("ucx: a process cannot return: {}", opened.error().message);
  });
}

void Engine::answer_returned(std::int32_t process) {
  Link* link = links_[static_cast<std::size_t>(process)].get();
  const bool is_back = link != nullptr && link->open && !link->expected;
  if (is_back && std::exchange(link->returns, false)) send_bare(*link, Kind::hello_ack);
}

}  // namespace grapevine::ucx
#endif
