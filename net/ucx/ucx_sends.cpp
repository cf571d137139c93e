#ifdef GRAPEVINE_UCX
// Messages to other processes.
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <utility>

#include "net/ucx/ucx_engine_parts.hpp"

namespace grapevine::ucx {
namespace {

constexpr std::size_t kMaxSpareSends = 64;

}  // namespace

bool is_running(std::int32_t pid) { return ::kill(pid, 0) == 0 || errno == EPERM; }

LeftForPeers& left_for_peers() {
  static auto* const left = new LeftForPeers();  // never destroyed: the end of the process frees it
  return *left;
}

void Engine::post(Outgoing outgoing) {
  if (links_[static_cast<std::size_t>(outgoing.process)] == nullptr) return;
  Link& link = *links_[static_cast<std::size_t>(outgoing.process)];
  if (!link.open || link.expected) return;
  // A message that could not be sent leaves a gap in the numbers, for which the other process would
  // wait: guard() ends the link.
  guard(&link, [&] {
    if (const auto* departure = std::get_if<Departure>(&outgoing.what))
      return send_bare(link, Kind::departure, departure->rank);
    auto& message = std::get<EncodedMessage>(outgoing.what);
    Prefix prefix;
    prefix.kind = Kind::message;
    send(link, prefix, message.header, std::move(message.payload));
  });
}

void Engine::send_bare(Link& link, Kind kind, Rank rank) {
  Prefix prefix;
  prefix.kind = kind;
  prefix.rank = rank;
  send(link, prefix, {}, {});
}

void Engine::send(Link& link, Prefix prefix, const EncodedHeader& header,
                  std::vector<FrozenTensor> payload) {
  if (link.endpoint == nullptr || link.closing) return;
  prefix.process = placement_.own_process;
  prefix.token = token_;
  const bool numbered = prefix.kind == Kind::message || prefix.kind == Kind::departure ||
                        prefix.kind == Kind::goodbye;
  if (numbered) prefix.number = link.next_out++;

  if (spare_.empty()) spare_.emplace_back();
  sends_.splice(sends_.end(), spare_, spare_.begin());
  const auto self = std::prev(sends_.end());
  Send& s = *self;
  s.link = &link;
  s.self = self;
  try {
    s.header.resize(sizeof prefix + header.size());
    std::memcpy(s.header.data(), &prefix, sizeof prefix);
    std::copy(header.begin(), header.end(), s.header.begin() + sizeof prefix);
    s.payload = std::move(payload);
    s.bytes = s.header.size();
    for (const FrozenTensor& t : s.payload) s.bytes += t.nbytes();
    queued_bytes_.add(s.bytes);
    for (const FrozenTensor& t : s.payload)
      if (t.nbytes() > 0)
        s.buffers.add(const_cast<void*>(t.raw()), t.nbytes());  // NOLINT: UCX reads
  } catch (const std::exception&) {  // no memory: no callback would end it
    forget(s);
    throw;
  }

  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
  if (is_on_device(s.payload)) {
    set_memory(param);
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_RNDV;
  }
  param.cb.send = on_sent;
  param.user_data = &s;
  param.datatype = s.buffers.datatype();
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(link.endpoint, kMessageId, s.header.data(), s.header.size(),
                      s.buffers.pointer(), s.buffers.count(), &param);
  if (UCS_PTR_IS_PTR(request)) return;  // on_sent() follows
  forget(s);
  if (UCS_PTR_IS_ERR(request)) fail(link, ucs_status_string(UCS_PTR_STATUS(request)));
}

bool Engine::is_on_device(const std::vector<FrozenTensor>& payload) const {
  const FrozenTensor* const only = device_memory_ ? only_tensor(payload) : nullptr;
  return only != nullptr && device_memory_->contains(*only);
}

void Engine::forget(Send& sent) {
  const auto self = sent.self;
  queued_bytes_.remove(std::exchange(sent.bytes, 0));
  if (spare_.size() == kMaxSpareSends) {
    sends_.erase(self);
    return;
  }
  sent.payload.clear();
  sent.buffers.clear();
  spare_.splice(spare_.begin(), sends_, self);
}

void Engine::on_sent(void* request, ucs_status_t status, void* user_data) {
  Send& s = *static_cast<Send*>(user_data);
  Link& link = *s.link;
  link.engine->guard(&link, [&] {
    if (status != UCS_OK && link.same_host)
      left_for_peers().add(link.peer.pid, std::move(s.payload));
    link.engine->forget(s);
  });
  ucp_request_free(request);
  if (status != UCS_OK)
    link.engine->guard(&link, [&] { link.engine->fail(link, ucs_status_string(status)); });
}

// UCX cannot revoke shared memory, and so never ends a send that a lost process might still fetch.
// Once that process has ended, the memory has no user.
void Engine::release_unfetchable() {
  const auto now = std::chrono::steady_clock::now();
  if (sends_.empty() || now - last_release_ < std::chrono::seconds(1)) return;
  last_release_ = now;
  for (Send& s : sends_)
    if (s.link->lost && s.link->same_host && s.link->endpoint == nullptr &&
        !is_running(s.link->peer.pid)) {
      s.payload.clear();
      queued_bytes_.remove(std::exchange(s.bytes, 0));
    }
}

}  // namespace grapevine::ucx
#endif
