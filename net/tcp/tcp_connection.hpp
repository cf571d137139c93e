// One connection of the TCP transport, on the event loop.
#pragma once
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/receive_pool.hpp"
#include "net/tcp/tcp_greeting.hpp"
#include "net/tcp/tcp_outbox.hpp"
#include "net/tcp/tcp_receiver.hpp"

namespace grapevine::tcp {

class Connection;

// Decides about connections. Calls come on the event loop; each may close the connection.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  // kHelloBytes, then kProofBytes (tcp_greeting.hpp).
  virtual void on_hello(Connection& connection, const std::byte* hello) = 0;
  virtual void on_proof(Connection& connection, const std::byte* proof) = 0;
  // The other side violates the protocol, or is too late, or this process fails at its bytes.
  virtual void on_failed(Connection& connection, const std::string& why) = 0;
  virtual void on_closed(Connection& connection) = 0;
};

// All calls are on the event loop, except those of OutboxLoop.
class Connection final : public OutboxLoop, public std::enable_shared_from_this<Connection> {
 public:
  // greeting: a Hello is awaited, maybe behind the stream's own handshake; proving: then a Proof;
  // held: it waits for the answer, without a limit of time; draining: bytes that arrive are
  // discarded until the end.
  enum class State { handshake, greeting, proving, held, open, draining, closed };

  Connection(asio::io_context& loop, std::shared_ptr<Stream> stream, ConnectionOwner& owner);
  ~Connection() override;

  // Awaits a Hello and a Proof, for as long as `timeout` together.
  void await_greeting(Clock::duration timeout);
  // From now on frames of that process are read. The first call on a connection that was dialled.
  void open(std::int32_t process, RankRouter& router, const CodecLimits& limits, ReceivePool& pool);
  // The rest of the outbox is sent, then the end; the owner learns when the other side ends.
  void drain();
  // As far as the kernel has it: the other process is about to be given up. It may live and write
  // on, so there is a bound. The owner may learn that the connection has ended.
  void read_what_has_arrived();
  // No callback follows. Bytes of either side that are under way are dropped.
  void close();

  State state() const { return state_; }
  bool is_open() const { return state_ == State::open; }
  std::int32_t process() const { return process_; }
  Nonces nonces;  // valid from `proving` on
  Proof proof;    // valid from `held` on
  Outbox& outbox() { return outbox_; }
  // Valid from `held` on: when the proof came, or later bytes.
  Clock::time_point last_received() const { return last_received_; }
  void count_as_received(Clock::time_point now) { last_received_ = now; }
  // The address at the other end.
  const std::string& peer_address() const { return peer_address_; }

  void pump_when_writable() override;
  void on_broken(const std::string& why) override;

 private:
  template <class F>
  void guard(F f);
  void wait_readable();
  void wait_writable();
  void on_readable();
  void on_writable();
  // Each returns false where nothing more can be read now.
  bool read_once();
  bool read_handshake();
  bool read_greeting();
  bool read_held();
  bool read_frames();
  bool discard();
  bool after(const Moved& moved);
  void take_greeting();
  void consume(std::size_t in_payload, std::size_t in_buffer);
  void say_goodbye();

  asio::io_context& loop_;
  const std::shared_ptr<Stream> stream_;
  ConnectionOwner& owner_;
  const std::string peer_address_;
  asio::posix::stream_descriptor watched_;  // the socket, which belongs to stream_
  asio::steady_timer greeting_timer_;
  Outbox outbox_;

  State state_ = State::handshake;
  std::vector<std::byte> greeting_;  // what has arrived of a Hello or Proof
  std::int32_t process_ = -1;        // valid from open() on
  std::optional<Receiver> receiver_;
  std::optional<FrameReader> reader_;
  bool wakes_for_handshake_ = false;
  bool said_goodbye_ = false;
  Clock::time_point last_received_ = Clock::now();
};

}  // namespace grapevine::tcp
