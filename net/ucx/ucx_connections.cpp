#ifdef GRAPEVINE_UCX
// Links to the other processes: hellos, and processes that return.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "net/ucx/ucx_engine_parts.hpp"

namespace grapevine::ucx {
namespace {

constexpr std::size_t kMaxEarlyHellos = 4096;  // unauthenticated hellos cannot fill the memory
constexpr std::chrono::milliseconds kHelloInterval{200};  // the others may expect us later

}  // namespace

Expected<void> Engine::connect(const std::vector<std::string>& addresses,
                               const Placement& placement, const ConnectOptions& options) {
  placement_ = placement;
  job_ = options.token;
  joining_ = options.joins;
  limits_.world_size = placement.world_size();
  links_.resize(addresses.size());
  for (std::int32_t p = 0; p < placement.processes(); ++p) {
    if (p == placement.own_process || options.is_absent(p)) continue;
    auto& link = links_[static_cast<std::size_t>(p)] = make_link(p);
    const Expected<void> open = open_link(*link, addresses[static_cast<std::size_t>(p)]);
    // Of a process that has just ended; see UcxTransport::wait_connected().
    if (!open && (!options.lost || open.error().code == Errc::bad_input)) return open;
  }
  for (const Prefix& hello : std::exchange(early_hellos_, {})) take_hello(hello);
  return {};
}

std::unique_ptr<Engine::Link> Engine::make_link(std::int32_t process) {
  const auto& hosts = placement_.host_of;
  auto link = std::make_unique<Link>();
  link->engine = this;
  link->process = process;
  link->host = hosts[static_cast<std::size_t>(process)];
  link->same_host = link->host == hosts[static_cast<std::size_t>(placement_.own_process)];
  return link;
}

Expected<void> Engine::open_link(Link& link, const std::string& address) {
  Expected<Address> peer = unpack_address(address);
  if (!peer) {
    link.open = false;
    return Error{peer.error().code,
                 "cannot connect to " + link.name() + ": " + peer.error().message};
  }
  link.peer = *std::move(peer);
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
  if (!link.returns) say_hello(link);
  return {};
}

void Engine::say_hello(Link& link) {
  if (!joining_) return send_bare(link, Kind::hello);
  const std::string own = address();
  Prefix prefix;
  prefix.kind = Kind::returning;
  send(link, prefix, {}, {},
       pack_return({own, return_proof(job_, placement_.own_process, link.process, own)}));
}

// The others drop the hellos of this process until they expect it.
void Engine::repeat_hellos() {
  joining_ = !connected();
  const auto now = std::chrono::steady_clock::now();
  if (!joining_ || now - last_hello_ < kHelloInterval) return;
  last_hello_ = now;
  for (const auto& link : links_)
    if (link != nullptr && link->open && !link->acknowledged) say_hello(*link);
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
  Link* link = sender_of(hello);
  if (link == nullptr || !link->open) return;
  answer_hello(*link);
}

void Engine::answer_hello(Link& link) {
  link.hello_received = true;
  send_bare(link, Kind::hello_ack);
}

void Engine::expect(std::int32_t process) {
  const Link* link = links_[static_cast<std::size_t>(process)].get();
  if (link == nullptr || !link->open) expected_.insert(process);
}

void Engine::take_return(const Prefix& prefix, const void* data, std::size_t length) {
  if (links_.empty() || prefix.process < 0 || prefix.process == placement_.own_process ||
      prefix.process >= placement_.processes())
    return;
  auto& place = links_[static_cast<std::size_t>(prefix.process)];
  if (place != nullptr && place->open && place->peer.token == prefix.token) {  // it repeats itself
    if (!place->returns) answer_hello(*place);
    return;
  }
  // After our goodbye it would wait for another one.
  if (saying_goodbye_ || expected_.count(prefix.process) == 0) return;
  const Expected<ReturnText> text = unpack_return(data, length);
  const bool proven =
      text && equal_secrets(text->proof, return_proof(job_, prefix.process, placement_.own_process,
                                                      text->address));
  if (!proven) {
    report_refused(
        fmt::format("refused process {}, which does not belong to this job", prefix.process));
    return;
  }
  expected_.erase(prefix.process);
  back_.emplace_back(prefix.process, text->address);
}

// Outside of callbacks. The link of the lost process stays as long as UCX may know it. Messages of
// the lost process are none of the new link's: its token is another.
void Engine::accept_back() {
  for (const auto& [process, address] : std::exchange(back_, {})) {
    auto& place = links_[static_cast<std::size_t>(process)];
    if (place != nullptr) {
      abandon(*place);
      former_.push_back(std::move(place));
    }
    place = make_link(process);
    place->returns = place->hello_received = true;
    if (const Expected<void> opened = open_link(*place, address); !opened) {
      spdlog::warn("ucx: process {} cannot return yet: {}", process, opened.error().message);
      expected_.insert(process);
      continue;
    }
    events_.emplace_back(ProcessBack{process});
  }
}

void Engine::greet_returned(std::int32_t process) {
  Link* link = links_[static_cast<std::size_t>(process)].get();
  if (link == nullptr || !link->open || !std::exchange(link->returns, false)) return;
  send_bare(*link, Kind::hello);
  answer_hello(*link);
}

}  // namespace grapevine::ucx
#endif
