#include "actors/cluster/secure/stream_scribe.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/uio.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/network/stream_impl.hpp>

#include "actors/protocol_wire.hpp"
#include "messages/text/exception_line.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

using caf::io::network::native_socket;
using caf::io::network::rw_state;

// How CAF's stream reads and writes; on the middleman's event loop.
class StreamPolicy {
 public:
  StreamPolicy(caf::actor_system& system, std::unique_ptr<tcp::Stream> stream, ScribeConfig config)
      : system_(system),
        stream_(std::move(stream)),
        peer_(tcp::address_of_peer(stream_->descriptor())),
        config_(std::move(config)),
        guard_(config_.first),
        sent_(other_greeting(config_.first)) {
    if (config_.silent) silent_ = config_.silent->add(stream_->descriptor(), peer_, now());
  }
  ~StreamPolicy() { end_silence(); }
  StreamPolicy(const StreamPolicy&) = delete;
  StreamPolicy& operator=(const StreamPolicy&) = delete;

  rw_state read_some(std::size_t& result, native_socket /*socket*/, void* into, std::size_t size) {
    result = 0;
    return guarded([&] { return read_now(result, into, size); });
  }

  // CAF offers the same bytes again until they count as written. They do once the socket has taken
  // what they were encrypted to: CAF waits for the socket only while it has bytes to write.
  rw_state write_some(std::size_t& result, native_socket /*socket*/, const void* from,
                      std::size_t size) {
    result = 0;
    return guarded([&] { return write_now(result, from, size); });
  }

  // The stream may hold bytes for which the socket does not become readable again.
  bool must_read_more(native_socket /*socket*/, std::size_t /*threshold*/) const {
    return config_.buffers && !blocked_;
  }

 private:
  static BaspGuard::First other_greeting(BaspGuard::First first) {
    return first == BaspGuard::First::greeting_of_dialling_side
               ? BaspGuard::First::greeting_of_accepting_side
               : BaspGuard::First::greeting_of_dialling_side;
  }

  // An exception would leave CAF's event loop, and end the process: it ends this connection.
  template <class Move>
  rw_state guarded(const Move& move) noexcept {
    try {
      return move();
    } catch (...) {
      report_connection_problem(peer_, *config_.limits, now());
      return rw_state::failure;
    }
  }

  rw_state read_now(std::size_t& result, void* into, std::size_t size) {
    const iovec part{into, size};
    const tcp::Moved moved = stream_->read(&part, 1);
    result = moved.bytes;
    blocked_ = moved.blocked;
    if (moved.bytes == 0 && (moved.ended || !moved.blocked)) return failed(moved);
    if (auto taken = guard_.take(into, moved.bytes); !taken) return refused(taken.error().message);
    note_length(guard_.take_longest(), "comes from", "heartbeats wait behind it");
    if (guard_.has_message()) end_silence();
    if (config_.silent) config_.silent->end_overdue(now());
    return rw_state::success;
  }

  rw_state write_now(std::size_t& result, const void* from, std::size_t size) {
    char* const first = const_cast<char*>(static_cast<const char*>(from));  // only read
    const iovec part{first + taken_, size - taken_};
    const tcp::Moved moved = stream_->write(&part, 1);
    if (!moved.error.empty()) return failed(moved);
    taken_ += moved.bytes;
    if (moved.blocked) return rw_state::success;
    result = std::exchange(taken_, 0);
    if (warned_) return rw_state::success;
    const bool refused = !sent_.take(from, result).ok();
    note_length(sent_.take_longest(), "goes to",
                refused ? "the other side ends the connection" : "heartbeats wait behind it");
    return rw_state::success;
  }

  // Once for each connection: a process that sends one long message may send many.
  void note_length(std::uint32_t bytes, const char* direction, const char* consequence) {
    if (warned_ || bytes <= kMostControlBytes) return;
    warned_ = true;
    if (const auto more = config_.limits->admit("a long message", now()))
      spdlog::warn("control: a message of {} bytes {} {}: longer than {} KiB, so that {}{}", bytes,
                   direction, peer_, kMostControlBytes >> 10, consequence, *more);
  }

  SilentConnections::Time now() const { return system_.clock().now(); }
  void end_silence() {
    if (silent_ > 0) config_.silent->remove(std::exchange(silent_, 0));
  }
  rw_state failed(const tcp::Moved& moved) const {
    if (!moved.error.empty())
      spdlog::info("control: the connection with {} is lost: {}", peer_, moved.error);
    return rw_state::failure;
  }
  rw_state refused(const std::string& why) const {
    if (const auto more = config_.limits->admit(why, now()))
      spdlog::warn("control: dropped a connection from {}: {}{}", peer_, why, *more);
    return rw_state::failure;
  }

  caf::actor_system& system_;
  const std::unique_ptr<tcp::Stream> stream_;
  const std::string peer_;
  const ScribeConfig config_;
  BaspGuard guard_;
  BaspGuard sent_;  // reads what this process sends
  bool warned_ = false;
  std::int64_t silent_ = 0;  // its number among the silent ones; 0: it is none
  bool blocked_ = true;      // the last read took all that was there
  std::size_t taken_ = 0;    // of the bytes that CAF offers, by the stream
};

class StreamScribe final : public caf::io::scribe {
 public:
  // Owns `socket`, another descriptor of the stream's connection.
  StreamScribe(caf::actor_system& system, native_socket socket, std::unique_ptr<tcp::Stream> stream,
               ScribeConfig config)
      : scribe(caf::io::connection_handle::from_int(next_handle())),
        stream_(middleman_loop(system), socket, system, std::move(stream), std::move(config)) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (!std::exchange(launched_, true)) stream_.start(this);
  }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void flush() override { stream_.flush(this); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  std::string addr() const override {
    const auto found = caf::io::network::remote_addr_of_fd(stream_.fd());
    return found ? *found : std::string();
  }
  std::uint16_t port() const override {
    const auto found = caf::io::network::remote_port_of_fd(stream_.fd());
    return found ? *found : std::uint16_t{0};
  }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  bool launched_ = false;
  caf::io::network::stream_impl<StreamPolicy> stream_;
};

}  // namespace

void report_connection_problem(const std::string& peer, LogLimits& limits,
                               LogLimit::Clock::time_point now) noexcept {
  try {
    if (const auto more = limits.admit("an exception", now))
      spdlog::warn("control: dropped a connection{}: {}{}", peer.empty() ? "" : " from " + peer,
                   exception_line(std::current_exception()), *more);
  } catch (...) {  // not even a line: memory is short
    static_cast<void>(0);
  }
}

caf::io::network::default_multiplexer& middleman_loop(caf::actor_system& system) {
  return static_cast<caf::io::network::default_multiplexer&>(system.middleman().backend());
}

std::int64_t next_handle() {
  static std::atomic<std::int64_t> last{std::int64_t{1} << 40};  // beyond all descriptors
  return ++last;
}

caf::io::scribe_ptr make_stream_scribe(caf::actor_system& system,
                                       std::unique_ptr<tcp::Stream> stream, ScribeConfig config) {
  const int socket = ::fcntl(stream->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (socket < 0) return nullptr;
  return caf::make_counted<StreamScribe>(system, socket, std::move(stream), std::move(config));
}

caf::io::scribe_ptr accept_stream_scribe(caf::actor_system& system,
                                         std::unique_ptr<tcp::Stream> stream, ScribeConfig config) {
  const std::shared_ptr<LogLimits> limits = config.limits;
  auto scribe = make_stream_scribe(system, std::move(stream), std::move(config));
  if (scribe) return scribe;
  const std::string why = "no descriptor is free";
  if (const auto more = limits->admit(why, system.clock().now()))
    spdlog::warn("control: a connection is dropped: {}{}", why, *more);
  return nullptr;
}

}  // namespace grapevine
