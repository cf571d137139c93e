#include "net/tcp/tcp_wire.hpp"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/io/broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/send.hpp>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "messages/text/exception_line.hpp"
#include "messages/text/log_limit.hpp"
#include "net/loss_reason.hpp"

namespace grapevine::tcp {
namespace {

using namespace std::chrono_literals;
using caf::io::connection_handle;
using caf::io::receive_policy;

using StartAtom = caf::atom_constant<caf::atom("start")>;
using AdoptAtom = caf::atom_constant<caf::atom("adopt")>;
using WakeAtom = caf::atom_constant<caf::atom("wake")>;
using DropAtom = caf::atom_constant<caf::atom("drop")>;
using ExpireAtom = caf::atom_constant<caf::atom("expire")>;
using BeatAtom = caf::atom_constant<caf::atom("beat")>;
using FinishAtom = caf::atom_constant<caf::atom("finish")>;
using StallAtom = caf::atom_constant<caf::atom("stall")>;

// Bytes handed to CAF and not yet to the kernel, per connection: one piece being written, one ready
// to follow it.
constexpr std::size_t kUnsentBytes = 2 * kTcpPieceBytes;
// Read at once between payloads. More would be zeroed more often than used: CAF sizes the buffer
// anew before every read.
constexpr std::size_t kHeaderReadBytes = 16 << 10;
constexpr Clock::duration kHelloPatience = 10s;
constexpr Clock::duration kStallCheck = 20ms;
// Connections without a Hello; further ones are refused.
constexpr std::size_t kMaxUnauthenticated = 256;
// For an event loop to end, beyond the time for flushing.
constexpr Clock::duration kFinishMargin = 5s;

std::size_t index(std::int32_t process) { return static_cast<std::size_t>(process); }

enum class Link { awaited, open, lost };

// Shared by the broker and the threads that send and wait.
struct Shared {
  explicit Shared(const TcpOptions& o) : options(o) {}

  const TcpOptions options;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::atomic<bool> woken{false};  // the broker is about to take the router's outgoing messages
  // Guarded by mutex.
  std::shared_ptr<RankRouter> router;  // null until start(); then constant
  std::vector<std::string> names;      // by process; constant after start()
  JobToken token{};                    // "
  std::vector<Link> links;             // by process
  std::string duplicate;               // why two processes cannot both take part; else empty
  std::int32_t own_process = -1;       // constant after start()
  bool finished = false;               // all connections have ended, and no others follow

  // The first other process with that link, or -1. REQUIRES: mutex is held.
  std::int32_t first(Link link) const {
    for (std::size_t p = 0; p < links.size(); ++p)
      if (static_cast<std::int32_t>(p) != own_process && links[p] == link)
        return static_cast<std::int32_t>(p);
    return -1;
  }
};

struct Connection {
  enum class State { greeting, held, open };

  connection_handle handle;
  std::uint64_t serial = 0;  // handles are descriptors and are reused; this is not
  State state = State::greeting;
  Hello hello;                // valid in `held`
  std::int32_t process = -1;  // valid in `open`
  std::unique_ptr<FrameReader> reader;
  std::deque<OutFrame> queue;
  std::size_t written = 0;   // bytes of queue.front() that CAF has
  std::uint64_t unsent = 0;  // bytes that CAF has and the kernel has not
  bool said_goodbye = false;
  Clock::time_point last_received;  // when bytes last arrived
  Clock::time_point progress;       // when bytes last went out
};

std::size_t size_of(const OutFrame& frame) {
  std::size_t size = frame.bytes.size();
  for (const FrozenTensor& t : frame.payload) size += t.nbytes();
  return size;
}

// Calls write(data, count) for the bytes from `offset` on, `limit` of them at most.
template <class Write>
void for_bytes(const OutFrame& frame, std::size_t offset, std::size_t limit, Write write) {
  const auto part = [&](const void* data, std::size_t size) {
    const std::size_t skipped = std::min(offset, size);
    const std::size_t count = std::min(size - skipped, limit);
    if (count > 0) write(static_cast<const char*>(data) + skipped, count);
    offset -= skipped;
    limit -= count;
  };
  part(frame.bytes.data(), frame.bytes.size());
  for (const FrozenTensor& t : frame.payload)
    if (t.nbytes() > 0) part(t.raw(), t.nbytes());
}

OutFrame frame_of(std::variant<EncodedMessage, Departure> what) {
  if (const auto* departure = std::get_if<Departure>(&what))
    return {encode_control({Control::rank_down, departure->rank}), {}};
  auto& message = std::get<EncodedMessage>(what);
  return {std::move(message.header), std::move(message.payload)};
}

// All of it runs on the event loop.
class Broker {
 public:
  Broker(std::shared_ptr<Shared> shared, caf::io::doorman_ptr doorman)
      : shared_(std::move(shared)), options_(shared_->options), doorman_(std::move(doorman)) {}

  caf::behavior run(caf::io::broker* self);

 private:
  using Connections = std::map<connection_handle, Connection>;

  // ---- connections
  void on_start();
  void on_adopt(int descriptor, std::int32_t process);
  void on_connection(connection_handle handle);
  void on_expired(std::uint64_t serial);
  void on_data(const caf::io::new_data_msg& message);
  void on_hello(Connection& c, const std::byte* data);
  void answer(Connection& c);
  Refusal judge(const Hello& hello);
  void open(Connection& c, std::int32_t process);
  void refuse(Connection& c, Refusal why);
  Connection& add(connection_handle handle);
  Connection* find(connection_handle handle);
  Connection* find_process(std::int32_t process);

  // ---- frames
  void on_wake();
  std::set<connection_handle> queue_outgoing();
  void pump_each(const std::set<connection_handle>& handles);
  void pump(Connection& c);
  void on_written(const caf::io::data_transferred_msg& message);
  void set_read_size(Connection& c);
  void on_beat();

  // ---- the end
  template <class F>
  void guard(connection_handle handle, F f);
  void on_exception(const std::exception_ptr& problem);
  void on_closed(connection_handle handle);
  void on_drop(std::int32_t process);
  void end(Connection& c, const std::string& why);
  void abandon(connection_handle handle);
  void lose(std::int32_t process, const std::string& why);
  void on_finish();
  void on_stall_check();
  void say_goodbye(Connection& c);
  void check_finished();

  Hello own_hello(Refusal refusal = Refusal::none) const;
  const std::string& name(std::int32_t process) const { return shared_->names[index(process)]; }
  std::string where(const Connection& c);
  std::string silence() const;

  const std::shared_ptr<Shared> shared_;
  const TcpOptions& options_;
  caf::io::doorman_ptr doorman_;  // until run()
  caf::io::accept_handle acceptor_;
  caf::io::broker* self_ = nullptr;
  std::shared_ptr<RankRouter> router_;  // null until on_start()
  CodecLimits limits_;                  // valid from then on
  std::uint64_t digest_ = 0;            // "
  JobToken token_{};                    // "
  Connections connections_;
  std::uint64_t serials_ = 0;
  LogLimit dropped_;  // lines about unauthenticated connections
  Clock::time_point last_beat_;
  bool finishing_ = false;
  Clock::time_point finish_by_;
};

// The frames of a connection. Checks that its process may send them.
class Receiver final : public FrameSink {
 public:
  Receiver(RankRouter& router, std::int32_t process) : router_(router), process_(process) {}

  Expected<void> admit(Rank from, Rank to) override {
    if (!lives_there(from))
      return Error{Errc::protocol, "a message from rank " + std::to_string(from) +
                                       ", which is not in that process"};
    if (!router_.placement().is_local(to))
      return Error{Errc::protocol,
                   "a message for rank " + std::to_string(to) + ", which is not in this process"};
    return {};
  }
  void on_message(Envelope envelope) override { router_.arrived(std::move(envelope)); }
  Expected<void> on_control(const Control& control) override {
    if (control.kind == Control::ping) pings_++;
    if (control.kind != Control::rank_down) return {};
    if (!lives_there(control.rank))
      return Error{Errc::protocol, "the departure of rank " + std::to_string(control.rank) +
                                       ", which is not in that process"};
    router_.rank_left(control.rank);
    return {};
  }

  int pings() const { return pings_; }

 private:
  bool lives_there(Rank rank) const {
    const Placement& placement = router_.placement();
    return rank >= 0 && rank < placement.world_size() &&
           placement.process_of[index(rank)] == process_;
  }

  RankRouter& router_;
  const std::int32_t process_;
  int pings_ = 0;
};

caf::behavior Broker::run(caf::io::broker* self) {
  self_ = self;
  acceptor_ = doorman_->hdl();
  self->add_doorman(std::exchange(doorman_, nullptr));
  self->set_exception_handler([this](std::exception_ptr& problem) -> caf::error {
    on_exception(problem);
    return caf::exit_reason::unhandled_exception;
  });
  return {
      [this](const caf::io::new_connection_msg& m) { on_connection(m.handle); },
      [this](const caf::io::new_data_msg& m) { guard(m.handle, [&] { on_data(m); }); },
      [this](const caf::io::data_transferred_msg& m) { guard(m.handle, [&] { on_written(m); }); },
      [this](const caf::io::connection_closed_msg& m) { on_closed(m.handle); },
      [](const caf::io::acceptor_closed_msg&) { spdlog::error("tcp: no longer listening"); },
      [this](StartAtom) { on_start(); },
      [this](AdoptAtom, int descriptor, std::int32_t process) { on_adopt(descriptor, process); },
      [this](WakeAtom) { on_wake(); },
      [this](DropAtom, std::int32_t process) { on_drop(process); },
      [this](ExpireAtom, std::uint64_t serial) { on_expired(serial); },
      [this](BeatAtom) { on_beat(); },
      [this](FinishAtom) { on_finish(); },
      [this](StallAtom) { on_stall_check(); },
  };
}

// ---- connections

void Broker::on_start() {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    router_ = shared_->router;
    token_ = shared_->token;
  }
  limits_ = options_.limits;
  limits_.world_size = router_->placement().world_size();
  digest_ = placement_digest(router_->placement());
  last_beat_ = Clock::now();
  if (options_.heartbeat > Duration::zero())
    self_->delayed_send(self_, options_.heartbeat, BeatAtom::value);
  std::vector<connection_handle> held;
  for (const auto& [handle, c] : connections_)
    if (c.state == Connection::State::held) held.push_back(handle);
  for (const connection_handle& handle : held)
    if (Connection* c = find(handle)) answer(*c);
}

void Broker::on_adopt(int descriptor, std::int32_t process) {
  FileDescriptor socket(descriptor);
  if (finishing_) return;
  GRAPEVINE_CHECK(router_ != nullptr && process >= 0 &&
                      process < router_->placement().processes() &&
                      process != router_->placement().own_process,
                  "a connection to process ", process);
  open(add(self_->add_scribe(socket.release())), process);
}

void Broker::on_connection(connection_handle handle) {
  const auto unauthenticated = std::count_if(
      connections_.begin(), connections_.end(),
      [](const auto& entry) { return entry.second.state != Connection::State::open; });
  Connection& c = add(handle);
  if (finishing_ || static_cast<std::size_t>(unauthenticated) >= kMaxUnauthenticated)
    return end(c, "there are too many unauthenticated connections");
  self_->configure_read(handle, receive_policy::exactly(kHelloBytes));
  self_->delayed_send(self_, kHelloPatience, ExpireAtom::value, c.serial);
}

Connection& Broker::add(connection_handle handle) {
  Connection& c = connections_[handle];
  c = Connection();
  c.handle = handle;
  c.serial = ++serials_;
  c.last_received = c.progress = Clock::now();
  return c;
}

Connection* Broker::find(connection_handle handle) {
  const auto found = connections_.find(handle);
  return found == connections_.end() ? nullptr : &found->second;
}

Connection* Broker::find_process(std::int32_t process) {
  for (auto& [handle, c] : connections_)
    if (c.state == Connection::State::open && c.process == process) return &c;
  return nullptr;
}

void Broker::on_expired(std::uint64_t serial) {
  for (auto& [handle, c] : connections_)
    if (c.serial == serial && c.state == Connection::State::greeting)
      return end(c, "it did not identify itself in time");
}

void Broker::on_data(const caf::io::new_data_msg& message) {
  Connection* const c = find(message.handle);
  if (c == nullptr || finishing_) return;  // while finishing, bytes are read only to see the end
  c->last_received = Clock::now();
  const auto* const data = reinterpret_cast<const std::byte*>(message.buf.data());
  if (c->state == Connection::State::greeting) return on_hello(*c, data);
  if (c->state == Connection::State::held) return end(*c, "it did not wait for an answer");
  Receiver receiver(*router_, c->process);
  const Expected<void> read = c->reader->consume(data, message.buf.size(), receiver);
  if (!read) return end(*c, kMalformed + read.error().message);
  set_read_size(*c);
  if (receiver.pings() > 0) {
    c->queue.push_back({encode_control({Control::pong, 0}), {}});
    pump(*c);
  }
}

void Broker::on_hello(Connection& c, const std::byte* data) {
  const Expected<Hello> hello = decode_hello(data);
  if (!hello) return end(c, hello.error().message);
  if (hello->refusal != Refusal::none) return end(c, "its greeting is damaged");
  c.hello = *hello;
  c.state = Connection::State::held;
  // Now, because CAF takes the size of the next read over when this handler returns: an answer that
  // start() gives later would leave it waiting for as many bytes as a greeting has.
  self_->configure_read(c.handle, receive_policy::at_most(kHeaderReadBytes));
  if (router_ != nullptr) answer(c);  // else start() does
}

void Broker::answer(Connection& c) {
  const Refusal why = judge(c.hello);
  if (why != Refusal::none) return refuse(c, why);
  const std::vector<std::byte> hello = encode_hello(own_hello());
  self_->write(c.handle, hello.size(), hello.data());
  self_->flush(c.handle);
  c.unsent += hello.size();
  open(c, c.hello.process);
}

Refusal Broker::judge(const Hello& hello) {
  const Placement& placement = router_->placement();
  if (!equal_tokens(hello.job, token_)) return Refusal::other_job;
  if (hello.placement != digest_ || hello.process >= placement.processes())
    return Refusal::other_placement;
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  const Link link = shared_->links[index(hello.process)];
  if (hello.process == placement.own_process || link == Link::open) {
    if (shared_->first(Link::awaited) >= 0) {  // still starting: the job is set up wrongly
      shared_->duplicate = "two processes call themselves process " +
                           std::to_string(hello.process) + ": give every process its own index";
      shared_->changed.notify_all();
    }
    return Refusal::duplicate_process;
  }
  if (hello.process < placement.own_process) return Refusal::lower_process;
  return link == Link::awaited ? Refusal::none : Refusal::too_late;
}

void Broker::refuse(Connection& c, Refusal why) {
  const std::vector<std::byte> hello = encode_hello(own_hello(why));
  self_->write(c.handle, hello.size(), hello.data());
  self_->flush(c.handle);
  end(c, describe(why));
}

void Broker::open(Connection& c, std::int32_t process) {
  c.state = Connection::State::open;
  c.process = process;
  c.reader = std::make_unique<FrameReader>(limits_);
  self_->ack_writes(c.handle, true);
  set_read_size(c);
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    Link& link = shared_->links[index(process)];
    if (link == Link::awaited) link = Link::open;
  }
  shared_->changed.notify_all();
}

// ---- frames

// Long data in large pieces, each copied once; short data together with the data after it.
void Broker::set_read_size(Connection& c) {
  const std::uint64_t missing = c.reader->missing();
  if (missing > kHeaderReadBytes)
    self_->configure_read(c.handle, receive_policy::exactly(static_cast<std::size_t>(
                                        std::min<std::uint64_t>(missing, kTcpPieceBytes))));
  else
    self_->configure_read(c.handle, receive_policy::at_most(kHeaderReadBytes));
}

void Broker::on_wake() {
  shared_->woken = false;  // first: a message that is queued from here on wakes the broker again
  pump_each(queue_outgoing());
}

// Returns the connections that have more to send now. Messages for a process that is down are
// dropped.
std::set<connection_handle> Broker::queue_outgoing() {
  std::set<connection_handle> changed;
  for (Outgoing& outgoing : router_->take_outgoing()) {
    Connection* const c = find_process(outgoing.process);
    if (c == nullptr) continue;
    changed.insert(c->handle);
    guard(c->handle, [&] { c->queue.push_back(frame_of(std::move(outgoing.what))); });
  }
  return changed;
}

void Broker::pump_each(const std::set<connection_handle>& handles) {
  for (const connection_handle& handle : handles)
    guard(handle, [&] {
      if (Connection* const c = find(handle)) pump(*c);
    });
}

void Broker::pump(Connection& c) {
  std::vector<char>& buffer = self_->wr_buf(c.handle);
  const bool was_idle = c.unsent == 0;
  while (c.unsent < kUnsentBytes && !c.queue.empty()) {
    const OutFrame& frame = c.queue.front();
    for_bytes(frame, c.written, kUnsentBytes - c.unsent, [&](const char* data, std::size_t count) {
      buffer.insert(buffer.end(), data, data + count);
      c.written += count;
      c.unsent += count;
    });
    if (c.written < size_of(frame)) break;
    c.queue.pop_front();  // lets go of the tensors
    c.written = 0;
  }
  if (was_idle) c.progress = Clock::now();
  self_->flush(c.handle);
  if (finishing_) say_goodbye(c);
}

void Broker::on_written(const caf::io::data_transferred_msg& message) {
  Connection* const c = find(message.handle);
  if (c == nullptr) return;
  c->progress = Clock::now();
  c->unsent = message.remaining;
  pump(*c);
}

void Broker::on_beat() {
  if (finishing_) return;
  const Clock::time_point now = Clock::now();
  // This process itself may have been suspended: then data of the others needs time to arrive.
  const bool late = now - last_beat_ > 2 * options_.heartbeat;
  last_beat_ = now;
  std::vector<connection_handle> silent;
  for (auto& [handle, c] : connections_) {
    if (c.state != Connection::State::open) continue;
    if (late) c.last_received = now;
    if (now - c.last_received > options_.heartbeat_timeout) silent.push_back(handle);
    if (c.queue.empty()) c.queue.push_back({encode_control({Control::ping, 0}), {}});
    pump(c);
  }
  for (const connection_handle& handle : silent)
    if (Connection* c = find(handle)) end(*c, silence());
  self_->delayed_send(self_, options_.heartbeat, BeatAtom::value);
}

// ---- The end

// An error of one connection, above all a lack of memory, ends that connection.
template <class F>
void Broker::guard(connection_handle handle, F f) {
  try {
    f();
  } catch (const std::exception&) {
    if (Connection* const c = find(handle))
      end(*c, kErrorHere + exception_line(std::current_exception()));
  }
}

// The last resort: no thread may wait for a broker that has failed.
void Broker::on_exception(const std::exception_ptr& problem) {
  try {
    const std::string why = exception_line(problem);
    spdlog::error("tcp: all connections end: {}", why);
    for (const auto& [handle, c] : connections_)
      ::shutdown(static_cast<int>(handle.id()), SHUT_RDWR);
    connections_.clear();
    if (router_ != nullptr)
      for (std::int32_t p = 0; p < router_->placement().processes(); ++p)
        if (p != router_->placement().own_process) lose(p, kErrorHere + why);
  } catch (const std::exception&) {
    spdlog::error("tcp: {}", exception_line(std::current_exception()));
  }
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->finished = true;
  shared_->changed.notify_all();
}

void Broker::on_closed(connection_handle handle) {
  Connection* const c = find(handle);
  if (c == nullptr) return;
  const bool open = c->state == Connection::State::open;
  const std::int32_t process = c->process;
  connections_.erase(handle);
  // Data that CAF has not written must not keep the socket in its loop.
  ::shutdown(static_cast<int>(handle.id()), SHUT_RDWR);
  if (open) lose(process, "the connection was closed");
  check_finished();
}

void Broker::on_drop(std::int32_t process) {
  if (Connection* c = find_process(process)) return end(*c, "");
  lose(process, "");
}

// Ends the connection because of the other side; an empty `why`: because of a report from
// elsewhere. `c` is destroyed.
void Broker::end(Connection& c, const std::string& why) {
  const connection_handle handle = c.handle;
  const bool open = c.state == Connection::State::open;
  const std::int32_t process = c.process;
  if (!open)
    if (const auto more = dropped_.admit())
      spdlog::warn("tcp: dropped a connection from {}: {}{}", where(c), why, *more);
  connections_.erase(handle);
  if (open)
    abandon(handle);
  else
    self_->close(handle);  // sends what it has: the reason of a refusal
  if (open) lose(process, why);
  check_finished();
}

// Without waiting for the other side. CAF keeps a closed connection in its loop until all is
// written, which may be never; a socket that is shut down takes no bytes and leaves at once.
void Broker::abandon(connection_handle handle) {
  ::shutdown(static_cast<int>(handle.id()), SHUT_RDWR);
  self_->close(handle);
}

void Broker::lose(std::int32_t process, const std::string& why) {
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->links[index(process)] = Link::lost;
  }
  shared_->changed.notify_all();
  // The loss of a process whose ranks have all left has no effect.
  if (!finishing_ && router_->process_left(process, why) && !why.empty())
    spdlog::warn("tcp: the link to {} is lost: {}", name(process), why);
}

void Broker::on_finish() {
  finishing_ = true;
  finish_by_ = Clock::now() + options_.flush_limit;
  self_->close(acceptor_);
  std::set<connection_handle> open, unauthenticated;
  for (auto& [handle, c] : connections_) {
    c.progress = Clock::now();
    (c.state == Connection::State::open ? open : unauthenticated).insert(handle);
  }
  for (const connection_handle& handle : unauthenticated) {
    connections_.erase(handle);
    abandon(handle);
  }
  if (router_ != nullptr) queue_outgoing();
  pump_each(open);
  self_->delayed_send(self_, kStallCheck, StallAtom::value);
  check_finished();
}

// Nothing more will follow. The other side closes when it has read everything, which is the only
// proof that it has: closing first, with its bytes unread, would make the kernel throw ours away.
void Broker::say_goodbye(Connection& c) {
  if (c.said_goodbye || c.unsent > 0 || !c.queue.empty()) return;
  c.said_goodbye = true;
  self_->configure_read(c.handle, receive_policy::at_most(kTcpPieceBytes));
  ::shutdown(static_cast<int>(c.handle.id()), SHUT_WR);
}

void Broker::on_stall_check() {
  const Clock::time_point now = Clock::now();
  std::vector<connection_handle> stalled;
  for (const auto& [handle, c] : connections_)
    if (now > finish_by_ || now - c.progress > options_.flush_patience) stalled.push_back(handle);
  for (const connection_handle& handle : stalled) {
    spdlog::warn("tcp: {} stopped reading; pending data was discarded",
                 name(connections_[handle].process));
    connections_.erase(handle);
    abandon(handle);
  }
  check_finished();
  if (!connections_.empty()) self_->delayed_send(self_, kStallCheck, StallAtom::value);
}

void Broker::check_finished() {
  if (!finishing_ || !connections_.empty()) return;
  self_->quit();
  const std::lock_guard<std::mutex> lock(shared_->mutex);
  shared_->finished = true;
  shared_->changed.notify_all();
}

Hello Broker::own_hello(Refusal refusal) const {
  // The token is for those alone that know it.
  return {router_->placement().own_process, refusal,
          refusal == Refusal::other_job ? JobToken{} : token_, digest_};
}

std::string Broker::silence() const {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.heartbeat_timeout);
  return "no data arrived from it for " + std::to_string(ms.count() / 1000) + " s";
}

std::string Broker::where(const Connection& c) {
  return join_address(self_->remote_addr(c.handle), self_->remote_port(c.handle));
}

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
                 const JobToken& token) {
  Shared& shared = *impl_->shared;
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    shared.own_process = router->placement().own_process;
    shared.links.assign(names.size(), Link::awaited);
    shared.names = std::move(names);
    shared.token = token;
    shared.router = std::move(router);
  }
  caf::anon_send(impl_->broker, StartAtom::value);
}

void Wire::adopt(FileDescriptor socket, std::int32_t process) {
  caf::anon_send(impl_->broker, AdoptAtom::value, socket.release(), process);
}

Expected<void> Wire::wait_connected(Clock::time_point deadline, const std::string& patience,
                                    const Cancelled& cancelled) {
  Shared& shared = *impl_->shared;
  std::unique_lock<std::mutex> lock(shared.mutex);
  const auto decided = [&] {
    return !shared.duplicate.empty() || shared.first(Link::lost) >= 0 ||
           shared.first(Link::awaited) < 0;
  };
  while (!shared.changed.wait_until(
      lock, std::min<Clock::time_point>(deadline, Clock::now() + kCancelPoll), decided)) {
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
    if (Clock::now() >= deadline) break;
  }
  if (!shared.duplicate.empty()) return bad_input(shared.duplicate);
  const std::int32_t lost = shared.first(Link::lost);
  if (lost >= 0)
    return Error{Errc::peer_down, shared.names[index(lost)] +
                                      " ended while the others were connecting: see its log"};
  const std::int32_t missing = shared.first(Link::awaited);
  if (missing >= 0)
    return Error{Errc::timeout, shared.names[index(missing)] + " did not connect within " +
                                    patience + ": see whether it runs and reaches this host"};
  return {};
}

void Wire::wake() {
  if (!impl_->shared->woken.exchange(true)) caf::anon_send(impl_->broker, WakeAtom::value);
}

void Wire::drop(std::int32_t process) { caf::anon_send(impl_->broker, DropAtom::value, process); }

}  // namespace grapevine::tcp
