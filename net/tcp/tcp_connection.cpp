#include "net/tcp/tcp_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <asio/dispatch.hpp>
#include <asio/post.hpp>
#include <exception>
#include <utility>

#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"

namespace grapevine::tcp {
namespace {

// The buffer of one read: for frames, and bytes behind a payload. Payload bytes in it are copied.
constexpr std::size_t kBufferBytes = std::size_t{64} << 10;
constexpr std::size_t kBehindPayloadBytes = std::size_t{4} << 10;
constexpr std::size_t kPayloadParts = 16;  // of a payload, in one system call
// Read before other connections have their turn.
constexpr int kReadsAtOnce = 16;
constexpr int kReadsAtMost = 4096;  // more than the kernel keeps for a connection

std::byte* buffer() {
  // Of the event loop's thread, whose connections take turns. Not zeroed.
  thread_local const std::unique_ptr<std::byte[]> bytes(new std::byte[kBufferBytes]);
  return bytes.get();
}

}  // namespace

Connection::Connection(asio::io_context& loop, std::shared_ptr<Stream> stream,
                       ConnectionOwner& owner)
    : loop_(loop),
      stream_(std::move(stream)),
      owner_(owner),
      peer_address_(address_of_peer(stream_->descriptor())),
      watched_(loop, stream_->descriptor()),
      greeting_timer_(loop),
      outbox_(stream_, *this) {}

Connection::~Connection() { close(); }

void Connection::await_greeting(Clock::duration timeout) {
  greeting_timer_.expires_after(timeout);
  greeting_timer_.async_wait([self = shared_from_this()](std::error_code cancelled) {
    if (!cancelled && self->state_ < State::held)
      self->owner_.on_failed(*self, "it did not identify itself in time");
  });
  on_readable();
}

void Connection::open(std::int32_t process, RankRouter& router, const CodecLimits& limits,
                      ReceivePool& pool) {
  const bool is_dialled = state_ == State::handshake;
  greeting_timer_.cancel();
  process_ = process;
  receiver_.emplace(router, process);
  reader_.emplace(limits, pool);
  last_received_ = Clock::now();
  state_ = State::open;
  // The stream may hold bytes that came with the answer: the socket need not become readable.
  if (is_dialled) asio::post(loop_, [self = shared_from_this()] { self->on_readable(); });
}

void Connection::drain() {
  state_ = State::draining;
  outbox_.restart_progress();
  outbox_.pump_all();
  say_goodbye();
}

void Connection::close() {
  if (state_ == State::closed) return;
  state_ = State::closed;
  greeting_timer_.cancel();
  outbox_.close();
  stream_->abort();
  watched_.release();
}

// ---- waiting

// An error of one connection, above all a lack of memory, ends that connection.
template <class F>
void Connection::guard(F f) {
  try {
    f();
  } catch (const std::exception&) {
    if (state_ != State::closed)
      owner_.on_failed(*this, kErrorHere + exception_line(std::current_exception()));
  }
}

void Connection::wait_readable() {
  watched_.async_wait(asio::posix::stream_descriptor::wait_read,
                      [self = shared_from_this()](std::error_code cancelled) {
                        if (!cancelled) self->on_readable();
                      });
}

void Connection::wait_writable() {
  if (state_ == State::closed) return;
  watched_.async_wait(asio::posix::stream_descriptor::wait_write,
                      [self = shared_from_this()](std::error_code cancelled) {
                        if (!cancelled) self->on_writable();
                      });
}

void Connection::on_readable() {
  guard([this] {
    bool more = true;
    for (int reads = 0; more && reads < kReadsAtOnce; ++reads) more = read_once();
    if (state_ == State::closed || wakes_for_handshake_) return;
    if (more)
      asio::post(loop_, [self = shared_from_this()] { self->on_readable(); });
    else
      wait_readable();
  });
}

void Connection::on_writable() {
  if (std::exchange(wakes_for_handshake_, false)) return on_readable();
  guard([this] {
    outbox_.resume();
    if (state_ == State::draining) say_goodbye();
  });
}

void Connection::pump_when_writable() {
  asio::dispatch(loop_, [self = shared_from_this()] { self->wait_writable(); });
}

// Bytes that have arrived come first: they may say more than the error of a write.
void Connection::on_broken(const std::string& why) {
  asio::post(loop_, [self = shared_from_this(), why] {
    self->guard([&] {
      if (is_error_here(why) && self->state_ != State::closed)
        return self->owner_.on_failed(*self, why);
      while (self->state_ != State::closed && self->read_once()) continue;
      if (self->state_ != State::closed) self->owner_.on_closed(*self);
    });
  });
}

void Connection::read_what_has_arrived() {
  guard([this] {
    for (int reads = 0; reads < kReadsAtMost && is_open() && read_once();) ++reads;
  });
}

// ---- reading

bool Connection::read_once() {
  switch (state_) {
    case State::handshake:
      return read_handshake();
    case State::greeting:
    case State::proving:
      return read_greeting();
    case State::held:
      return read_held();
    case State::open:
      return read_frames();
    case State::draining:
      return discard();
    case State::closed:
      break;
  }
  return false;
}

// Whether the state is as before, and more may be read.
bool Connection::after(const Moved& moved) {
  if (state_ == State::closed) return false;
  if (!moved.ended && moved.error.empty()) return !moved.blocked;
  owner_.on_closed(*this);
  return false;
}

bool Connection::read_handshake() {
  bool wants_write = false;
  const Moved moved = stream_->handshake(wants_write);
  if (!moved.error.empty()) {
    owner_.on_failed(*this, moved.error);
    return false;
  }
  if (moved.blocked && wants_write) {
    wakes_for_handshake_ = true;
    wait_writable();
  }
  if (!moved.blocked) state_ = State::greeting;
  return !moved.blocked;
}

bool Connection::read_greeting() {
  const std::size_t wanted = state_ == State::greeting ? kHelloBytes : kProofBytes;
  std::array<std::byte, std::max(kHelloBytes, kProofBytes)> bytes{};
  const iovec part{bytes.data(), wanted - greeting_.size()};
  const Moved moved = stream_->read(&part, 1);
  greeting_.insert(greeting_.end(), bytes.begin(), bytes.begin() + moved.bytes);
  if (greeting_.size() == wanted) take_greeting();
  return after(moved);
}

void Connection::take_greeting() {
  const std::vector<std::byte> bytes = std::exchange(greeting_, {});
  if (state_ == State::greeting) {
    state_ = State::proving;
    owner_.on_hello(*this, bytes.data());
  } else {
    state_ = State::held;
    last_received_ = Clock::now();
    owner_.on_proof(*this, bytes.data());
  }
}

bool Connection::read_held() {
  std::byte byte{};
  const iovec part{&byte, 1};
  const Moved moved = stream_->read(&part, 1);
  if (moved.bytes > 0) owner_.on_failed(*this, "it did not wait for an answer");
  return after(moved);
}

bool Connection::read_frames() {
  std::array<iovec, kPayloadParts + 1> parts{};
  std::size_t count = reader_->payload_room(parts.data(), kPayloadParts);
  std::size_t room = 0;
  for (std::size_t i = 0; i < count; ++i) room += parts[i].iov_len;
  if (count < kPayloadParts)
    parts[count] = {buffer(), count == 0 ? kBufferBytes : kBehindPayloadBytes};
  if (count < kPayloadParts) ++count;
  const Moved moved = stream_->read(parts.data(), count);
  if (moved.bytes > 0) {
    last_received_ = Clock::now();
    const std::size_t in_payload = std::min(moved.bytes, room);
    consume(in_payload, moved.bytes - in_payload);
  }
  return after(moved);
}

void Connection::consume(std::size_t in_payload, std::size_t in_buffer) {
  const int pings = receiver_->pings();
  Expected<void> read;
  if (in_payload > 0) read = reader_->payload_filled(in_payload, *receiver_);
  if (read && in_buffer > 0) read = reader_->consume(buffer(), in_buffer, *receiver_);
  if (!read) return owner_.on_failed(*this, loss_reason(read.error()));
  if (receiver_->pings() == pings) return;
  outbox_.add({encode_control({Control::pong, 0}), {}});
  outbox_.pump_all();
}

bool Connection::discard() {
  const iovec part{buffer(), kBufferBytes};
  return after(stream_->read(&part, 1));
}

// Nothing more will follow. The other side closes when it has read everything, which is the only
// proof that it has: closing first, with its bytes unread, would make the kernel throw ours away.
void Connection::say_goodbye() {
  if (!outbox_.is_sent() || std::exchange(said_goodbye_, true)) return;
  stream_->finish_writing();
}

}  // namespace grapevine::tcp
