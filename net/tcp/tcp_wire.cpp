#include "net/tcp/tcp_wire.hpp"

#include <spdlog/spdlog.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "net/tcp/tcp_hub.hpp"
#include "net/tcp/tcp_links.hpp"
#include "net/tcp/tcp_routes.hpp"

namespace grapevine::tcp {
namespace {

// How long an event loop may take to end, beyond the time for flushing.
constexpr Clock::duration kFinishMargin = std::chrono::seconds(5);

}  // namespace

struct Wire::Impl {
  explicit Impl(const TcpOptions& o) : options(o), hub(loop, options, routes) {}

  void run();
  void end();

  const TcpOptions options;
  asio::io_context loop{1};  // run by one thread
  asio::executor_work_guard<asio::io_context::executor_type> work{loop.get_executor()};
  Routes routes;
  Hub hub;                             // on the event loop, from listen() on
  std::shared_ptr<RankRouter> router;  // null until start(); constant then
  std::shared_ptr<Links> links;        // "
  std::thread thread;

  std::mutex mutex;
  std::condition_variable changed;
  bool finished = false;  // guarded by mutex; the event loop does nothing more
};

void Wire::Impl::run() {
  try {
    loop.run();
  } catch (...) {  // the last resort
    hub.fail(std::current_exception());
  }
  const std::lock_guard<std::mutex> lock(mutex);
  finished = true;
  changed.notify_all();
}

Expected<std::unique_ptr<Wire>> Wire::listen(const TcpOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  const Expected<void> listening = impl->hub.listen();
  if (!listening) return listening.error();
  impl->hub.accept();
  impl->thread = std::thread([impl = impl.get()] { impl->run(); });
  return std::unique_ptr<Wire>(new Wire(std::move(impl)));
}

Wire::Wire(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Wire::~Wire() {
  Impl& impl = *impl_;
  asio::post(impl.loop, [&impl] { impl.hub.finish([&impl] { impl.work.reset(); }); });
  std::unique_lock<std::mutex> lock(impl.mutex);
  const bool finished = impl.changed.wait_for(lock, impl.options.flush_limit + kFinishMargin,
                                              [&] { return impl.finished; });
  lock.unlock();
  if (finished) {
    impl.thread.join();
    return;
  }
  spdlog::error("tcp: the event loop does not end; its thread is abandoned");
  impl.thread.detach();
  static_cast<void>(impl_.release());
}

std::uint16_t Wire::port() const { return impl_->hub.port(); }

void Wire::start(std::shared_ptr<RankRouter> router, std::vector<std::string> names,
                 const JobToken& token, const std::vector<std::int32_t>& absent) {
  impl_->links = std::make_shared<Links>(router->placement(), std::move(names), token, absent);
  impl_->router = std::move(router);
  asio::post(impl_->loop, [impl = impl_.get()] { impl->hub.start(impl->router, impl->links); });
}

void Wire::adopt(std::unique_ptr<Stream> stream, std::int32_t process) {
  asio::post(impl_->loop, [impl = impl_.get(), stream = std::move(stream), process]() mutable {
    impl->hub.adopt(std::move(stream), process);
  });
}

Expected<void> Wire::wait_connected(Clock::time_point deadline, const std::string& timeout,
                                    const Cancelled& cancelled, const LostMeanwhile& lost) {
  return impl_->links->wait_connected(deadline, timeout, cancelled, lost);
}

void Wire::send() { impl_->routes.send(*impl_->router); }

std::uint64_t Wire::queued_bytes() const { return impl_->routes.queued_bytes(); }

void Wire::expect(std::int32_t process) {
  asio::post(impl_->loop, [impl = impl_.get(), process] { impl->hub.expect(process); });
}

void Wire::drop(std::int32_t process) {
  asio::post(impl_->loop, [impl = impl_.get(), process] { impl->hub.drop(process); });
}

}  // namespace grapevine::tcp
