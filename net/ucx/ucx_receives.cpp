#ifdef GRAPEVINE_UCX
// Messages of other processes, in the order of their numbers.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include "messages/device/model_vectors.hpp"
#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"
#include "net/ucx/ucx_engine_parts.hpp"

namespace grapevine::ucx {
namespace {

constexpr int kRendezvousAtOnce = 4;  // of one process

}  // namespace

ucs_status_t Engine::on_am(void* arg, const void* header, std::size_t header_length, void* data,
                           std::size_t length, const ucp_am_recv_param_t* param) {
  const bool is_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  auto& engine = *static_cast<Engine*>(arg);
  ucs_status_t status = UCS_ERR_NO_MEMORY;
  engine.guard(nullptr, [&] {
    status = engine.on_active_message(header, header_length, data, length, is_rendezvous);
  });
  return is_rendezvous ? status : UCS_OK;  // UCX aborts where anything else is refused
}

// Another program may send any number of them.
void Engine::report_refused(const std::string& what) {
  if (++refused_ == 1) spdlog::warn("ucx: {}; further ones are dropped silently", what);
}

ucs_status_t Engine::on_active_message(const void* bytes, std::size_t size, void* data,
                                       std::size_t length, bool is_rendezvous) {
  const Expected<Prefix> prefix = read_prefix(bytes, size);
  if (!prefix) {
    report_refused(prefix.error().message);
    return UCS_ERR_REJECTED;
  }
  if (prefix->kind == Kind::hello) {
    take_hello(*prefix);
    return UCS_OK;
  }
  Link* link = sender_of(*prefix);
  if (link == nullptr || !link->open) return UCS_ERR_REJECTED;
  const bool numbered = prefix->kind != Kind::hello_ack && prefix->kind != Kind::seen;
  if (numbered && !number_is_new(*link, prefix->number)) {
    fail(*link, kMalformed + ("it sent number " + std::to_string(prefix->number) + " twice"));
    return UCS_ERR_REJECTED;
  }
  if (prefix->kind != Kind::message) {
    take_notice(*link, *prefix);
    return UCS_OK;
  }
  const auto* header = static_cast<const std::byte*>(bytes) + sizeof(Prefix);
  Expected<DecodedHeader> decoded = check_header(*link, header, size - sizeof(Prefix), length);
  if (!decoded) {
    fail(*link, kMalformed + decoded.error().message);
    return UCS_ERR_REJECTED;
  }
  return take_message(*link, prefix->number, *std::move(decoded), data, is_rendezvous);
}

// Everything but messages and hellos: it has no payload.
void Engine::take_notice(Link& link, const Prefix& prefix) {
  switch (prefix.kind) {
    case Kind::departure:
      if (auto checked = check_departure(placement_, link.process, prefix.rank); !checked)
        fail(link, kMalformed + checked.error().message);
      else
        in_order(link, prefix.number, Departure{prefix.rank});
      break;
    case Kind::goodbye:
      in_order(link, prefix.number, ProcessLeft{link.process, ""});
      break;
    case Kind::hello_ack:
      link.acknowledged = true;
      break;
    case Kind::seen:
      link.saw_all = true;
      break;
    case Kind::message:
    case Kind::hello:
      break;
  }
}

bool Engine::number_is_new(const Link& link, std::uint64_t number) const {
  return number >= link.next_in && link.waiting.count(number) == 0;
}

Expected<DecodedHeader> Engine::check_header(const Link& link, const std::byte* header,
                                             std::size_t bytes, std::size_t length) const {
  Expected<DecodedHeader> decoded = decode_header(header, bytes, limits_);
  if (!decoded) return decoded;
  const Envelope& e = decoded->envelope;
  if (auto checked = check_sender(placement_, link.process, e.from, e.to); !checked)
    return checked.error();
  if (decoded->payload_bytes() != length)
    return Error{Errc::protocol, fmt::format("it sent {} bytes of payload for {}", length,
                                             decoded->payload_bytes())};
  return decoded;
}

ucs_status_t Engine::take_message(Link& link, std::uint64_t number, DecodedHeader header,
                                  void* data, bool is_rendezvous) {
  const auto self = receives_.emplace(receives_.end());
  Receive& r = *self;
  r.engine = this;
  r.link = &link;
  r.number = number;
  r.self = self;
  r.header = std::move(header);
  if (is_rendezvous) {
    r.descriptor = data;
    link.waiting.emplace(number, std::nullopt);
    link.announced.push_back(&r);
    ++announced_;
    return UCS_INPROGRESS;  // the descriptor is kept
  }
  if (!allocate(r)) return UCS_ERR_NO_MEMORY;
  const auto* from = static_cast<const std::byte*>(data);
  for (const at::Tensor& t : r.payload) {
    if (!t.defined() || t.nbytes() == 0) continue;
    std::memcpy(t.data_ptr(), from, t.nbytes());
    from += t.nbytes();
  }
  received(r, UCS_OK);
  return UCS_OK;
}

// False, and the receive and its link have ended, where memory has run out: nothing may be thrown
// through UCX.
bool Engine::allocate(Receive& r) {
  try {
    r.on_device = allocate_on_device(r);
    if (!r.on_device) r.payload = pool_.allocate(r.header);
    return true;
  } catch (const std::exception&) {
    const std::string why = exception_line(std::current_exception());
    Link& link = *r.link;
    const std::uint64_t bytes = r.header.payload_bytes();
    if (r.descriptor != nullptr) ucp_am_data_release(worker_->handle(), r.descriptor);
    receives_.erase(r.self);
    fail(link,
         kErrorHere + ("no memory for its message of " + std::to_string(bytes) + " bytes: " + why));
    return false;
  }
}

// Whether the payload has memory of the device now. An eager one is copied by the host, and packed
// vectors are checked by their receiver's host before it unpacks them.
bool Engine::allocate_on_device(Receive& r) {
  if (device_memory_ == nullptr || r.descriptor == nullptr) return false;
  const auto present = [](const TensorDescriptor& t) { return t.present; };
  const std::vector<TensorDescriptor>& tensors = r.header.tensors;
  if (std::count_if(tensors.begin(), tensors.end(), present) != 1) return false;
  const auto only = std::find_if(tensors.begin(), tensors.end(), present);
  const Envelope& envelope = r.header.envelope;
  if (only->bytes == 0 || !c10::isFloatingType(only->dtype) || !has_model_vectors(envelope.payload))
    return false;
  at::Tensor memory = device_memory_->allocate(envelope.to, only->sizes, only->dtype);
  if (!memory.defined()) return false;
  r.payload.resize(tensors.size());
  r.payload[static_cast<std::size_t>(only - tensors.begin())] = std::move(memory);
  return true;
}

// A few at a time, oldest first: memory is taken only for messages that arrive now, and later
// messages do not slow down the first one.
void Engine::begin_announced() {
  for (const auto& link : links_) {
    while (link != nullptr && link->receiving < kRendezvousAtOnce && !link->announced.empty()) {
      Receive& next = *link->announced.front();
      link->announced.pop_front();
      --announced_;
      if (allocate(next)) start(next);
    }
  }
}

void Engine::start(Receive& r) {
  for (const at::Tensor& t : r.payload)
    if (t.defined()) r.buffers.add(t.data_ptr(), t.nbytes());
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_DATATYPE;
  if (r.on_device) set_memory(param);
  param.cb.recv_am = on_received;
  param.user_data = &r;
  param.datatype = r.buffers.datatype();
  // Counted first: UCX may report the loss of the link from within this call, and then the receive
  // has no link any more. on_received() takes it off again.
  ++r.link->receiving;
  // From here on the descriptor is UCX's, even where this fails.
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_->handle(), std::exchange(r.descriptor, nullptr),
                           r.buffers.pointer(), r.buffers.count(), &param);
  if (UCS_PTR_IS_PTR(request)) return;
  if (r.link != nullptr) --r.link->receiving;
  received(r, UCS_PTR_RAW_STATUS(request));
}

void Engine::on_received(void* request, ucs_status_t status, std::size_t, void* user_data) {
  Receive& r = *static_cast<Receive*>(user_data);
  ucp_request_free(request);
  Engine& engine = *r.engine;
  Link* const link = r.link;
  if (link != nullptr) --link->receiving;
  engine.guard(link, [&] { engine.received(r, status); });
}

void Engine::received(Receive& r, ucs_status_t status) {
  const auto self = r.self;
  Receive done = std::move(r);
  receives_.erase(self);
  if (done.link == nullptr) return;
  if (status != UCS_OK) return fail(*done.link, ucs_status_string(status));
  Expected<Envelope> message = assemble(std::move(done.header), std::move(done.payload));
  if (!message) return fail(*done.link, kMalformed + message.error().message);
  in_order(*done.link, done.number, *std::move(message));
}

void Engine::in_order(Link& link, std::uint64_t number, std::optional<Event> event) {
  if (number != link.next_in) {
    link.waiting[number] = std::move(event);
    return;
  }
  link.waiting.erase(number);
  ++link.next_in;
  take_effect(link, *std::move(event));
  for (auto next = link.waiting.begin();
       next != link.waiting.end() && next->first == link.next_in && next->second.has_value();
       next = link.waiting.begin()) {
    Event waited = *std::move(next->second);
    link.waiting.erase(next);
    ++link.next_in;
    take_effect(link, std::move(waited));
  }
}

void Engine::take_effect(Link& link, Event event) {
  const bool has_left = std::holds_alternative<ProcessLeft>(event);
  events_.push_back(std::move(event));
  if (!has_left) return;
  link.open = false;  // first: an answer that cannot be sent is no second end
  link.why = "it has ended";
  send_bare(link, Kind::seen);
}

std::vector<Event> Engine::take_events() { return std::exchange(events_, {}); }

}  // namespace grapevine::ucx
#endif
