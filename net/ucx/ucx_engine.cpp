#ifdef GRAPEVINE_UCX
#include "net/ucx/ucx_engine.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <iterator>
#include <mutex>
#include <random>
#include <utility>

#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"

namespace grapevine::ucx {
namespace {

constexpr unsigned kMessageId = 0;              // of the only kind of active message
constexpr int kProgressRounds = 64;             // before other work
constexpr int kProgressRoundsAtMost = 1 << 12;  // for messages that have arrived
constexpr int kVainPolls = 16;                  // about a microsecond: then the caller may yield
constexpr int kRendezvousAtOnce = 4;            // of one process
constexpr std::size_t kMaxSpareSends = 64;
constexpr std::size_t kMaxEarlyHellos = 4096;  // unauthenticated hellos cannot fill the memory
constexpr std::chrono::milliseconds kHelloInterval{200};  // the others may expect us later

std::uint64_t random_token() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

bool is_running(std::int32_t pid) { return ::kill(pid, 0) == 0 || errno == EPERM; }

// Data that a process of this host was sent over shared memory and has not fetched, e.g. because it
// is suspended. It must find these bytes when it continues, also after the link was closed.
class LeftForPeers {
 public:
  void add(std::int32_t pid, std::vector<FrozenTensor> payload) {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_.erase(std::remove_if(left_.begin(), left_.end(),
                               [](const auto& entry) { return !is_running(entry.first); }),
                left_.end());
    if (is_running(pid)) left_.emplace_back(pid, std::move(payload));
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::int32_t, std::vector<FrozenTensor>>> left_;  // guarded by mutex_
};

LeftForPeers& left_for_peers() {
  static auto* const left = new LeftForPeers();  // never destroyed: the end of the process frees it
  return *left;
}

// The bytes of some tensors, as UCX takes them: one buffer (or none) as itself, more as a list.
class Buffers {
 public:
  void add(void* bytes, std::size_t size) {
    if (size > 0) parts_.push_back({bytes, size});
  }
  void clear() { parts_.clear(); }
  void* pointer() {
    if (is_list()) return parts_.data();
    return parts_.empty() ? nullptr : parts_[0].buffer;
  }
  std::size_t count() const {
    if (is_list()) return parts_.size();
    return parts_.empty() ? 0 : parts_[0].length;
  }
  ucp_datatype_t datatype() const { return is_list() ? ucp_dt_make_iov() : ucp_dt_make_contig(1); }

 private:
  bool is_list() const { return parts_.size() > 1; }

  std::vector<ucp_dt_iov_t> parts_;
};

}  // namespace

struct Engine::Link {
  Engine* engine = nullptr;
  std::int32_t process = 0;
  std::string host;
  Address peer;
  bool same_host = false;
  ucp_ep_h endpoint = nullptr;

  bool open = true;             // until it says goodbye or is lost
  bool lost = false;            // without a goodbye
  bool returns = false;         // its ProcessBack has not taken effect yet: it is not greeted
  bool hello_received = false;  // its hello
  bool acknowledged = false;    // by it
  bool saw_all = false;         // it has answered our goodbye
  bool closing = false;         // the endpoint
  bool overwhelmed = false;     // its messages could not be processed
  std::string why;              // it was lost

  std::uint64_t next_out = 0;
  std::uint64_t next_in = 0;
  std::map<std::uint64_t, std::optional<Event>> waiting;  // by number; empty: still arriving
  std::deque<Receive*> announced;                         // rendezvous not begun yet
  int receiving = 0;                                      // rendezvous under way

  std::string name() const {
    return fmt::format("process {} (host '{}', pid {})", process, host, peer.pid);
  }
};

struct Engine::Send {
  Link* link = nullptr;
  std::vector<std::byte> header;  // UCX reads it until the send completes, and the payload
  std::vector<FrozenTensor> payload;
  std::string text;         // in their place
  std::uint64_t bytes = 0;  // of header and payload
  Buffers buffers;
  std::list<Send>::iterator self;
};

struct Engine::Receive {
  Engine* engine = nullptr;
  Link* link = nullptr;  // null: the link was lost, the message is dropped
  std::uint64_t number = 0;
  void* descriptor = nullptr;  // UCX's, of a rendezvous not begun yet
  DecodedHeader header;
  std::vector<at::Tensor> payload;
  Buffers buffers;
  std::list<Receive>::iterator self;
};

// ---- Life

Expected<std::unique_ptr<Engine>> Engine::make(const UcxOptions& options) {
  Expected<std::unique_ptr<Worker>> worker = Worker::make(options);
  if (!worker) return worker.error();
  std::unique_ptr<Engine> engine(new Engine(*std::move(worker), options));
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.cb = on_am;
  handler.arg = engine.get();
  const ucs_status_t status = ucp_worker_set_am_recv_handler(engine->worker_->handle(), &handler);
  if (status != UCS_OK)
    return Error{Errc::io,
                 std::string("UCX refuses active messages: ") + ucs_status_string(status)};
  return engine;
}

Engine::Engine(std::unique_ptr<Worker> worker, const UcxOptions& options)
    : token_(random_token()), pool_(options.keep_receive_bytes), worker_(std::move(worker)) {}

Engine::~Engine() {
  for (Send& s : sends_)
    if (s.link->same_host) left_for_peers().add(s.link->peer.pid, std::move(s.payload));
  // UCX aborts where a worker ends before its requests. A leaked worker is inactive, because no
  // thread progresses it.
  if (quiet()) return;
  spdlog::warn("ucx: {} messages to and {} from processes that do not answer are abandoned",
               sends_.size(), receives_.size());
  worker_.release();  // NOLINT(bugprone-unused-return-value)
}

std::string Engine::address() const {
  return pack_address({token_, static_cast<std::int32_t>(::getpid()), worker_->address(),
                       worker_->network_address()});
}

Expected<void> Engine::connect(const std::vector<std::string>& addresses,
                               const Placement& placement, const ConnectOptions& options) {
  placement_ = placement;
  job_ = options.token;
  joining_ = options.joins;
  limits_.world_size = placement.world_size();
  links_.resize(addresses.size());
  for (std::int32_t p = 0; p < placement.processes(); ++p) {
    const bool is_absent =
        std::find(options.absent.begin(), options.absent.end(), p) != options.absent.end();
    if (p == placement.own_process || is_absent) continue;
    auto& link = links_[static_cast<std::size_t>(p)] = make_link(p);
    const Expected<void> open = open_link(*link, addresses[static_cast<std::size_t>(p)]);
    if (!open) return open;
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
    return Error{Errc::io, "cannot connect to " + link.name() + ": " + ucs_status_string(status) +
                               "; check the devices and transports given to UCX"};
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

bool Engine::connected() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) {
    return link == nullptr || (link->hello_received && link->acknowledged);
  });
}

bool Engine::connect_failed() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) {
    return link != nullptr && !link->open && !(link->hello_received && link->acknowledged);
  });
}

std::string Engine::unconnected() const {
  const Link* missing = nullptr;
  for (const auto& link : links_) {
    if (link == nullptr || (link->hello_received && link->acknowledged)) continue;
    if (missing == nullptr || (missing->open && !link->open)) missing = link.get();
  }
  GRAPEVINE_CHECK(missing != nullptr, "unconnected() of a connected transport");
  if (!missing->open) return missing->name() + ": " + missing->why;
  return missing->name() + ": " +
         (missing->hello_received ? "it does not answer" : "no hello arrived");
}

// ---- Sending

void Engine::post(Outgoing outgoing) {
  if (links_[static_cast<std::size_t>(outgoing.process)] == nullptr) return;
  Link& link = *links_[static_cast<std::size_t>(outgoing.process)];
  if (!link.open) return;
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
                  std::vector<FrozenTensor> payload, std::string text) {
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
    s.text = std::move(text);
    s.bytes = s.header.size();
    for (const FrozenTensor& t : s.payload) s.bytes += t.nbytes();
    queued_bytes_.add(s.bytes);
    s.buffers.add(s.text.data(), s.text.size());
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
  if (!s.text.empty()) {  // an address arrives with its message, however long it is
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_EAGER;
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

void Engine::forget(Send& sent) {
  const auto self = sent.self;
  queued_bytes_.remove(std::exchange(sent.bytes, 0));
  if (spare_.size() == kMaxSpareSends) {
    sends_.erase(self);
    return;
  }
  sent.payload.clear();
  sent.text.clear();
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

// ---- Receiving

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

ucs_status_t Engine::on_active_message(const void* bytes, std::size_t size, void* data,
                                       std::size_t length, bool is_rendezvous) {
  const Expected<Prefix> prefix = read_prefix(bytes, size);
  if (!prefix) {
    if (++refused_ == 1)
      spdlog::warn("ucx: {}; further ones are dropped silently", prefix.error().message);
    return UCS_ERR_REJECTED;
  }
  if (prefix->kind == Kind::hello) {
    take_hello(*prefix);
    return UCS_OK;
  }
  if (prefix->kind == Kind::returning) {
    if (is_rendezvous) {
      spdlog::warn("ucx: process {} says {} bytes of itself: refused", prefix->process, length);
      return UCS_ERR_REJECTED;
    }
    take_return(*prefix, data, length);
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
    case Kind::returning:
      break;
  }
}

// The link of a process that knows its own token; null otherwise.
Engine::Link* Engine::sender_of(const Prefix& prefix) {
  Link* link = nullptr;
  if (prefix.process >= 0 && prefix.process < static_cast<std::int32_t>(links_.size()))
    link = links_[static_cast<std::size_t>(prefix.process)].get();
  if (link != nullptr && link->peer.token == prefix.token) return link;
  if (++refused_ == 1)
    spdlog::warn(
        "ucx: dropped a message of a process outside this job (process {}); further ones are "
        "dropped silently",
        prefix.process);
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
  if (expected_.count(prefix.process) == 0) return;
  const Expected<ReturnText> text = unpack_return(data, length);
  const bool proven =
      text && equal_secrets(text->proof, return_proof(job_, prefix.process, placement_.own_process,
                                                      text->address));
  if (!proven) {
    if (++refused_ == 1)
      spdlog::warn(
          "ucx: refused process {}, which does not belong to this job; further ones are "
          "refused silently",
          prefix.process);
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
    r.payload = pool_.allocate(r.header);
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
  param.cb.recv_am = on_received;
  param.user_data = &r;
  param.datatype = r.buffers.datatype();
  // From here on the descriptor is UCX's, even where this fails.
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_->handle(), std::exchange(r.descriptor, nullptr),
                           r.buffers.pointer(), r.buffers.count(), &param);
  if (UCS_PTR_IS_PTR(request))
    ++r.link->receiving;  // until on_received()
  else
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

// ---- Loss

void Engine::on_endpoint_error(void* arg, ucp_ep_h, ucs_status_t status) {
  Link& link = *static_cast<Link*>(arg);
  link.engine->guard(&link, [&] { link.engine->fail(link, ucs_status_string(status)); });
}

template <class F>
void Engine::guard(Link* link, F f) noexcept {
  try {
    f();
  } catch (...) {  // no memory: the code below needs none
    overwhelmed_ = true;
    for (const auto& one : links_)
      if (one != nullptr && (link == nullptr || one.get() == link)) one->overwhelmed = true;
  }
}

void Engine::fail_overwhelmed() {
  for (const auto& link : links_)
    if (link != nullptr && std::exchange(link->overwhelmed, false))
      fail(*link, std::string(kErrorHere) + "no memory for a message");
  overwhelmed_ = false;
}

void Engine::fail(Link& link, const std::string& why) {
  if (link.open) {
    // First the code that may throw: a callback that cannot continue fails the link once more.
    std::string kept = why;
    events_.emplace_back(ProcessLeft{link.process, why});
    link.open = false;
    link.lost = any_lost_ = true;
    link.why = std::move(kept);
    // A process that has received our goodbye may end before its answer is read.
    if (!saying_goodbye_) spdlog::warn("ucx: lost {}: {}", link.name(), why);
  }
  abandon(link);
}

// The loss follows the messages that have arrived. The process may live and send on. Payloads that
// it has only announced are still in its memory, and are dropped.
void Engine::lose(std::int32_t process) {
  expected_.erase(process);
  for (int rounds = 0, vain = 0; rounds < kProgressRoundsAtMost && vain < kVainPolls; ++rounds)
    vain = ucp_worker_progress(worker_->handle()) == 0 ? vain + 1 : 0;
  if (links_[static_cast<std::size_t>(process)] == nullptr) {  // it has no link here
    events_.emplace_back(ProcessLeft{process, ""});
    return;
  }
  Link& link = *links_[static_cast<std::size_t>(process)];
  if (link.open) events_.emplace_back(ProcessLeft{process, ""});
  give_up(link);
}

void Engine::give_up(Link& link) {
  if (link.open) {
    link.open = false;
    link.lost = any_lost_ = true;
    link.why = "it was reported dead";
  }
  abandon(link);
}

// Requests in flight end with the endpoint.
void Engine::abandon(Link& link) {
  link.waiting.clear();
  for (Receive* r : std::exchange(link.announced, {})) {
    ucp_am_data_release(worker_->handle(), r->descriptor);
    receives_.erase(r->self);
    --announced_;
  }
  for (Receive& r : receives_)
    if (r.link == &link) r.link = nullptr;
  if (link.endpoint == nullptr || link.closing) return;
  broken_.push_back(&link);
  link.closing = true;
}

void Engine::close_broken() {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  for (Link* link : std::exchange(broken_, {})) {
    void* request = ucp_ep_close_nbx(std::exchange(link->endpoint, nullptr), &param);
    if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  }
}

// ---- Progress and the end

// UCX cannot revoke shared memory, and so never ends a send that a lost process might still fetch.
// Once that process has ended, the memory has no user.
void Engine::release_unfetchable() {
  const auto now = std::chrono::steady_clock::now();
  if (sends_.empty() || now - last_release_ < std::chrono::seconds(1)) return;
  last_release_ = now;
  for (Send& s : sends_)
    if (s.link->lost && s.link->same_host && s.link->endpoint == nullptr &&
        !is_running(s.link->peer.pid))
      s.payload.clear();
}

bool Engine::progress() {
  int rounds = 0;
  for (int vain = 0; rounds < kProgressRounds && vain < kVainPolls;) {
    if (ucp_worker_progress(worker_->handle()) == 0) {
      if (rounds > 0) break;
      ++vain;
      continue;
    }
    if (announced_ > 0) begin_announced();
    ++rounds;
  }
  if (announced_ > 0) begin_announced();
  if (overwhelmed_) fail_overwhelmed();
  if (!back_.empty()) accept_back();
  if (joining_) repeat_hellos();
  if (!broken_.empty()) close_broken();
  if (any_lost_) release_unfetchable();
  const auto is_done = [](void* request) {
    const bool done = ucp_request_check_status(request) != UCS_INPROGRESS;
    if (done) ucp_request_free(request);
    return done;
  };
  closing_.erase(std::remove_if(closing_.begin(), closing_.end(), is_done), closing_.end());
  return rounds > 0 || !events_.empty();
}

void Engine::say_goodbye() {
  saying_goodbye_ = true;
  for (const auto& link : links_)
    if (link != nullptr && link->open) send_bare(*link, Kind::goodbye);
}

bool Engine::goodbyes_seen() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) {
    return link == nullptr || !link->open || !link->hello_received || link->saw_all;
  });
}

void Engine::close_endpoints() {
  const ucp_request_param_t param{};
  for (const auto& link : links_) {
    if (link == nullptr || link->endpoint == nullptr || link->closing) continue;
    if (link->open && !link->saw_all) {
      give_up(*link);
      continue;
    }
    link->closing = true;
    void* request = ucp_ep_close_nbx(std::exchange(link->endpoint, nullptr), &param);
    if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
  }
}

bool Engine::quiet() const {
  return broken_.empty() && closing_.empty() && sends_.empty() && receives_.empty();
}

}  // namespace grapevine::ucx
#endif
