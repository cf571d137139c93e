#include "net/tcp/tcp_broker.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"

namespace grapevine::tcp {
namespace {

using namespace std::chrono_literals;
using caf::io::connection_handle;
using caf::io::receive_policy;

using ExpireAtom = caf::atom_constant<caf::atom("expire")>;
using BeatAtom = caf::atom_constant<caf::atom("beat")>;
using StallAtom = caf::atom_constant<caf::atom("stall")>;

// Read at once between payloads. More would be zeroed more often than used: CAF sizes the buffer
// anew before every read.
constexpr std::size_t kHeaderReadBytes = 16 << 10;
constexpr Clock::duration kHelloPatience = 10s;
constexpr Clock::duration kStallCheck = 20ms;
// Connections without a Hello; further ones are refused.
constexpr std::size_t kMaxUnauthenticated = 256;

}  // namespace

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
      [this](ExpectAtom, std::int32_t process) { on_expect(process); },
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
    links_ = shared_->links;
  }
  limits_ = options_.limits;
  limits_.world_size = router_->placement().world_size();
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
  const Refusal why = links_->judge(c.hello);
  if (why != Refusal::none) return refuse(c, why);
  const std::vector<std::byte> hello = encode_hello(links_->own_hello());
  self_->write(c.handle, hello.size(), hello.data());
  self_->flush(c.handle);
  c.unsent += hello.size();
  open(c, c.hello.process);  // in the same handler: nothing is read before
}

void Broker::refuse(Connection& c, Refusal why) {
  const std::vector<std::byte> hello = encode_hello(links_->own_hello(why));
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
  if (links_->open(process)) router_->process_up(process);
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
  const bool was_idle = c.unsent == 0;
  c.fill(self_->wr_buf(c.handle));
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

void Broker::on_expect(std::int32_t process) {
  if (!finishing_) links_->expect(process);
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
  links_->lose(process);
  // The loss of a process whose ranks have all left has no effect.
  if (!finishing_ && router_->process_left(process, why) && !why.empty())
    spdlog::warn("tcp: the link to {} is lost: {}", links_->name(process), why);
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
  if (c.said_goodbye || !c.is_sent()) return;
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
                 links_->name(connections_[handle].process));
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

std::string Broker::silence() const {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.heartbeat_timeout);
  return fmt::format("no data arrived from it for {} s", ms.count() / 1000);
}

std::string Broker::where(const Connection& c) {
  return join_address(self_->remote_addr(c.handle), self_->remote_port(c.handle));
}

}  // namespace grapevine::tcp
