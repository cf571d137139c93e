#include "net/tcp/credentials/stream_acceptor.hpp"

#include <spdlog/spdlog.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <map>
#include <thread>
#include <utility>

#include "messages/text/exception_line.hpp"
#include "messages/text/log_limits.hpp"
#include "net/resolve.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tcp_listener.hpp"

namespace grapevine::tcp {
namespace {

// A connection until its handshake is complete. On the event loop.
struct Handshake : std::enable_shared_from_this<Handshake> {
  Handshake(asio::io_context& loop, std::unique_ptr<Stream> unshaken)
      : stream(std::move(unshaken)),
        watched(loop, stream->descriptor()),
        timer(loop),
        peer(address_of_peer(stream->descriptor())) {}
  ~Handshake() { watched.release(); }

  std::unique_ptr<Stream> stream;
  asio::posix::stream_descriptor watched;  // of the stream, which closes it
  asio::steady_timer timer;
  const std::string peer;
  std::int64_t number = 0;  // from 1
};

}  // namespace

struct StreamAcceptor::Impl {
  Impl(std::shared_ptr<const Credentials> own, std::string named, Limits given)
      : credentials(std::move(own)), name(std::move(named)), limits(given) {}

  void run();
  void stop();
  void on_connection(FileDescriptor socket);
  void proceed(const std::shared_ptr<Handshake>& h);
  void wait(const std::shared_ptr<Handshake>& h, bool wants_write);
  void accept(const std::shared_ptr<Handshake>& h);
  void drop_oldest();
  void drop(const std::shared_ptr<Handshake>& h, const std::string& why);
  void forget(const std::shared_ptr<Handshake>& h);

  const std::shared_ptr<const Credentials> credentials;
  const std::string name;
  const Limits limits;
  OnStream on_stream;        // constant from start() on
  asio::io_context loop{1};  // run by one thread
  asio::executor_work_guard<asio::io_context::executor_type> work{loop.get_executor()};
  Listener listener{loop};  // all below on the event loop, once that runs
  std::int64_t last = 0;
  std::map<std::int64_t, std::shared_ptr<Handshake>> handshakes;  // by number: the oldest first
  LogLimits dropped;
  std::thread thread;
};

// Until the destructor ends it.
void StreamAcceptor::Impl::run() {
  for (;;) {
    try {
      loop.run();
      return;
    } catch (...) {
      spdlog::error("{}: {}", name, exception_line(std::current_exception()));
    }
  }
}

void StreamAcceptor::Impl::stop() {
  listener.close();
  for (const auto& h : std::exchange(handshakes, {})) forget(h.second);
  work.reset();
}

void StreamAcceptor::Impl::on_connection(FileDescriptor socket) {
  if (!credentials) return on_stream(make_plain_stream(std::move(socket)));
  auto h = std::make_shared<Handshake>(loop, credentials->accepted(std::move(socket)));
  if (handshakes.size() >= limits.most) drop_oldest();
  h->number = ++last;
  handshakes.emplace(h->number, h);
  h->timer.expires_after(limits.longest);
  h->timer.async_wait([this, h](std::error_code cancelled) {
    if (!cancelled && handshakes.count(h->number) > 0) drop(h, "its handshake took too long");
  });
  proceed(h);
}

void StreamAcceptor::Impl::proceed(const std::shared_ptr<Handshake>& h) {
  bool wants_write = false;
  const Moved moved = h->stream->handshake(wants_write);
  if (!moved.error.empty()) return drop(h, moved.error);
  if (moved.blocked) return wait(h, wants_write);
  accept(h);
}

void StreamAcceptor::Impl::wait(const std::shared_ptr<Handshake>& h, bool wants_write) {
  using asio::posix::stream_descriptor;
  h->watched.async_wait(wants_write ? stream_descriptor::wait_write : stream_descriptor::wait_read,
                        [this, h](std::error_code cancelled) {
                          if (!cancelled && handshakes.count(h->number) > 0) proceed(h);
                        });
}

// A dialling side of TLS 1.3 does not know by itself whether its certificate is accepted.
void StreamAcceptor::Impl::accept(const std::shared_ptr<Handshake>& h) {
  const std::byte accepted = kStreamAccepted;
  const iovec part{const_cast<std::byte*>(&accepted), 1};
  const Moved moved = h->stream->write(&part, 1);
  if (!moved.error.empty() || moved.blocked) return drop(h, "it takes no bytes");
  forget(h);
  on_stream(std::move(h->stream));
}

void StreamAcceptor::Impl::drop_oldest() {
  const std::shared_ptr<Handshake> oldest = handshakes.begin()->second;  // drop() erases that one
  drop(oldest, "there are too many unauthenticated connections");
}

void StreamAcceptor::Impl::drop(const std::shared_ptr<Handshake>& h, const std::string& why) {
  forget(h);
  if (const auto more = dropped.admit(why))
    spdlog::warn("{}: dropped a connection from {}: {}{}", name, h->peer, why, *more);
  h->stream->abort();
}

void StreamAcceptor::Impl::forget(const std::shared_ptr<Handshake>& h) {
  handshakes.erase(h->number);
  h->timer.cancel();
  h->watched.release();
}

Expected<std::unique_ptr<StreamAcceptor>> StreamAcceptor::listen(
    const std::string& host, std::uint16_t port, std::shared_ptr<const Credentials> credentials,
    std::string name, Limits limits) {
  auto impl = std::make_unique<Impl>(std::move(credentials), std::move(name), limits);
  if (auto opened = impl->listener.open(host, port); !opened) return opened.error();
  return std::unique_ptr<StreamAcceptor>(new StreamAcceptor(std::move(impl)));
}

void StreamAcceptor::start(OnStream on_stream) {
  impl_->on_stream = std::move(on_stream);
  impl_->listener.accept([impl = impl_.get()](FileDescriptor socket) {
    try {
      impl->on_connection(std::move(socket));
    } catch (const std::exception&) {  // above all a lack of memory: others are still accepted
      spdlog::error("{}: a connection is dropped: {}", impl->name,
                    exception_line(std::current_exception()));
    }
  });
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

StreamAcceptor::StreamAcceptor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StreamAcceptor::~StreamAcceptor() {
  if (!impl_->thread.joinable()) return;
  asio::post(impl_->loop, [impl = impl_.get()] { impl->stop(); });
  impl_->thread.join();
}

std::uint16_t StreamAcceptor::port() const { return impl_->listener.port(); }

}  // namespace grapevine::tcp
