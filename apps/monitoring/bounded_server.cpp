#include "apps/monitoring/bounded_server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "net/addresses.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kCloseTimeout{1};
// Of a TLS handshake, which occupies one of the threads.
constexpr std::chrono::seconds kHandshakeTimeout{2};
constexpr std::chrono::milliseconds kClientPoll{1};

// One request and its answer over a socket, with bounds on its size and its time.
class BoundedStream final : public httplib::Stream {
 public:
  explicit BoundedStream(std::unique_ptr<tcp::Stream> stream)
      : stream_(std::move(stream)), socket_(stream_->descriptor()) {}

  // With TLS, before all else.
  bool shake_hands() {
    const Clock::time_point until = Clock::now() + kHandshakeTimeout;
    for (;;) {
      bool wants_write = false;
      const tcp::Moved moved = stream_->handshake(wants_write);
      if (!moved.error.empty()) failure_ = "TLS: " + moved.error;
      if (!moved.error.empty()) return false;
      if (!moved.blocked) {
        read_by_ = Clock::now() + BoundedServer::kReadTimeout;
        return true;
      }
      if (!wait(wants_write ? POLLOUT : POLLIN, until)) {
        failure_ = "it sent no complete TLS handshake in time";
        return false;
      }
    }
  }
  void finish() {
    stream_->finish_writing();
    stream_->abort();
  }

  bool is_readable() const override { return wait(POLLIN, read_by_); }
  bool is_writable() const override { return wait(POLLOUT, deadline_); }
  ssize_t read(char* into, std::size_t size) override {
    if (at_ == end_) {
      if (read_ >= BoundedServer::kLongestRequest) return -1;
      const ssize_t got = receive();
      if (got <= 0) return got;
      read_ += static_cast<std::size_t>(got);
      at_ = 0;
      end_ = static_cast<std::size_t>(got);
    }
    const std::size_t given = std::min(size, end_ - at_);
    std::memcpy(into, buffer_.data() + at_, given);
    at_ += given;
    return static_cast<ssize_t>(given);
  }
  ssize_t write(const char* from, std::size_t size) override {
    for (std::size_t sent = 0;;) {
      const iovec rest{const_cast<char*>(from) + sent, size - sent};  // only read
      const tcp::Moved moved = stream_->write(&rest, 1);
      sent += moved.bytes;
      gone_ = !moved.error.empty();
      if (gone_) return -1;
      if (!moved.blocked) return static_cast<ssize_t>(size);
      if (!wait(POLLOUT, deadline_)) return -1;
    }
  }
  // For handlers that use addresses; here none does.
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return socket_; }

  // Why it cannot be answered; empty: nothing has come, as of a client that only tries the port, or
  // the client has not waited for its answer.
  std::string problem() const {
    if (!failure_.empty()) return failure_;
    if (read_ >= BoundedServer::kLongestRequest) return "its request is too long";
    if (late_) return "its request took too long";
    return read_ > 0 && !gone_ ? "its request is not HTTP" : "";
  }

 private:
  bool wait(short events, Clock::time_point until) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd waited{socket_, events, 0};
    late_ = left.count() <= 0 || ::poll(&waited, 1, static_cast<int>(left.count())) <= 0;
    return !late_;
  }

  // The stream may hold bytes for which the socket does not become readable again.
  ssize_t receive() {
    for (;;) {
      const iovec part{buffer_.data(), buffer_.size()};
      const tcp::Moved moved = stream_->read(&part, 1);
      if (moved.bytes > 0) return static_cast<ssize_t>(moved.bytes);
      if (moved.ended) return 0;
      if (!moved.error.empty() || !wait(POLLIN, read_by_)) return -1;
    }
  }

  const std::unique_ptr<tcp::Stream> stream_;
  const socket_t socket_;
  std::string failure_;  // of the handshake
  const Clock::time_point deadline_ = Clock::now() + BoundedServer::kRequestTimeout;
  Clock::time_point read_by_ = Clock::now() + BoundedServer::kReadTimeout;  // the request
  mutable bool late_ = false;                                               // a time was over
  bool gone_ = false;
  std::array<char, 4096> buffer_{};
  std::size_t at_ = 0, end_ = 0;
  std::size_t read_ = 0;  // bytes in all
};

// The library's queue has no bound. Tasks beyond ours run at once, on the thread that accepts,
// as refused.
class BoundedQueue final : public httplib::TaskQueue {
 public:
  static bool refuses() { return refusing; }

  void enqueue(std::function<void()> serve) override {
    if (waiting_->fetch_add(1) >= BoundedServer::kMostWaiting) {
      refusing = true;
      serve();
      refusing = false;
      --*waiting_;
      return;
    }
    threads_.enqueue([serve = std::move(serve), waiting = waiting_] {
      serve();
      --*waiting;
    });
  }
  void shutdown() override { threads_.shutdown(); }

 private:
  static thread_local bool refusing;
  const std::shared_ptr<std::atomic<std::size_t>> waiting_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  httplib::ThreadPool threads_{BoundedServer::kThreads};
};

thread_local bool BoundedQueue::refusing = false;

// The system's text, and what to do about it: the host or the port is wrong.
Error why_not(const ListenAddress& address, int error) {
  if (const auto host = can_listen(address.host, 0); !host)
    return {Errc::io, host.error().message + ": give an address or a name of this machine"};
  return {Errc::io, std::string(error != 0 ? std::strerror(error) : "no such address") +
                        ": choose another port, or 0 for one that is free"};
}

}  // namespace

BoundedServer::BoundedServer() {
  new_task_queue = [] { return new BoundedQueue; };
}

// The library unpacks a body of any size before a handler sees the request, and answers each of
// thousands of ranges with a part of its own, as often with the whole. RFC 9110 lets a server
// ignore ranges (14.2); a body that is packed is none that a handler understands.
void BoundedServer::keep_plain(httplib::Request& request) {
  request.ranges.clear();
  request.headers.erase("Content-Encoding");
}

bool BoundedServer::process_and_close_socket(socket_t socket) {
  bool served = false;
  std::string problem = "too many connections wait";
  FileDescriptor owned(socket);
  if (BoundedQueue::refuses()) {
    ::shutdown(owned.get(), SHUT_RDWR);
  } else {
    BoundedStream stream(tls_ ? tls_->accepted(std::move(owned))
                              : tcp::make_plain_stream(std::move(owned)));
    bool closed = false;
    served = stream.shake_hands() && process_request(stream, true, closed, keep_plain);
    problem = stream.problem();
    stream.finish();
  }
  if (!served && !problem.empty() && cut_off_) cut_off_(problem);
  return served;
}

Expected<std::uint16_t> BoundedServer::listen_at(const ListenAddress& address) {
  // Not SO_REUSEPORT, the library's choice: two runs would share a port.
  set_socket_options([](auto socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const char* const host = address.host.c_str();
  errno = 0;
  const int port = address.port == 0                  ? bind_to_any_port(host)
                   : bind_to_port(host, address.port) ? address.port
                                                      : -1;
  if (port <= 0) return why_not(address, errno);
  return static_cast<std::uint16_t>(port);
}

void BoundedServer::serve() {
  std::promise<void> end;
  ended_ = end.get_future();
  serving_ = std::thread([this, end = std::move(end)]() mutable {
    listen_after_bind();
    end.set_value();
  });
  // stop() does nothing before this.
  while (!is_running() && ended_.wait_for(kClientPoll) != std::future_status::ready) {
  }
}

bool BoundedServer::stop_serving() {
  if (!serving_.joinable()) return true;
  stop();
  if (ended_.wait_for(kCloseTimeout) != std::future_status::ready) return false;
  serving_.join();
  return true;
}

}  // namespace grapevine
