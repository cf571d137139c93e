#include "net/ucx/ucx.hpp"

#ifndef GRAPEVINE_UCX

namespace grapevine {

bool ucx_built_in() { return false; }

Expected<std::unique_ptr<RemoteTransport>> make_ucx_transport(const UcxOptions&) {
  return bad_input("the ucx transport is not built in: install libucx-dev and configure again");
}

}  // namespace grapevine

#else

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "messages/text/exception_line.hpp"
#include "net/file_descriptor.hpp"
#include "net/queued_bytes.hpp"
#include "net/rank_router.hpp"
#include "net/ucx/ucx_engine.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

// Nothing waits longer for an event, so that a lost wake-up costs time but hangs nothing.
constexpr std::chrono::milliseconds kLongestSleep{200};
// Where UCX refuses to arm although nothing moves: another process has to make room first.
constexpr std::chrono::milliseconds kNap{1};
constexpr std::chrono::seconds kCloseTime{1};

class UcxTransport final : public RemoteTransport {
 public:
  UcxTransport(std::unique_ptr<ucx::Engine> engine, const UcxOptions& options);
  ~UcxTransport() override;
  // Errors (io): no descriptors left.
  Expected<void> start();

  std::string address() const override { return address_; }
  using RemoteTransport::connect;
  // A process is known by a token of its own, which its address carries.
  Expected<void> connect(const std::vector<std::string>& addresses, const Placement& placement,
                         Duration timeout, const ConnectOptions& options) override;
  void process_down(std::int32_t process) override;
  void expect_process(std::int32_t process, const std::string& host,
                      const std::string& address) override;

  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override;
  void detach(Rank rank) override;
  void send(Envelope envelope) override;
  TransportCounters counters(Rank rank) const override { return router().counters(rank); }
  bool by_reference(Rank from, Rank to) const override { return router().by_reference(from, to); }
  bool takes_device_memory(Rank from, Rank to) const override {
    return uses_device_memory_ && !by_reference(from, to);
  }
  std::uint64_t queued_bytes() const override { return *queued_bytes_; }
  bool is_up(std::int32_t process) const override { return router().is_up(process); }
  std::int32_t world_size() const override {
    return router_ == nullptr ? 0 : router_->placement().world_size();
  }

 private:
  RankRouter& router() const;

  bool wait_connected(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                      const ConnectOptions& options);
  void skip_lost(const ConnectOptions& options);
  void run();
  std::shared_ptr<void> enter_device_memory();
  bool work_once();
  void take_back(RankRouter& router, std::int32_t process);
  void post_outgoing();
  void check_other(std::int32_t process) const;
  struct Report {
    std::int32_t process = 0;
    std::string host;
    std::optional<std::string> returns_at;  // its address; none: it is lost
  };
  void report(Report report);
  void take_reports();
  void idle(Clock::time_point& active_at);
  void sleep(std::chrono::milliseconds longest);
  void kick();
  void wake();
  void finish();
  template <class Done>
  void work_until(Clock::time_point deadline, const Done& done);

  const UcxOptions options_;
  const std::string address_;
  const FileDescriptor wake_;
  const FileDescriptor events_;
  std::unique_ptr<RankRouter> router_;  // made by connect(), under engine_mutex_

  const std::shared_ptr<QueuedTotal> queued_bytes_ = std::make_shared<QueuedTotal>(0);

  // Held by the progress thread while it works, and by senders that find it asleep. Never waited
  // for in send().
  std::mutex engine_mutex_;
  std::unique_ptr<ucx::Engine> engine_;     // guarded by engine_mutex_
  std::condition_variable engine_changed_;  // connect() waits for it
  bool connecting_ = false;                 // guarded by engine_mutex_

  // The run reports that another process is dead, or may return.
  std::mutex reported_mutex_;
  std::vector<Report> reported_;  // guarded by reported_mutex_

  // Written by the progress thread before it serves connect().
  std::atomic<bool> uses_device_memory_{false};
  std::atomic<bool> asleep_{false};  // the progress thread looks at the queues before it sleeps
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

UcxTransport::UcxTransport(std::unique_ptr<ucx::Engine> engine, const UcxOptions& options)
    : options_(options),
      address_(engine->address()),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      engine_(std::move(engine)) {
  engine_->queued_bytes().count_in(queued_bytes_);
}

Expected<void> UcxTransport::start() {
  for (const int fd : {wake_.get(), engine_->descriptor()}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return Error{Errc::io, std::string("the ucx transport cannot wait for events: ") +
                                 std::strerror(errno)};  // NOLINT(concurrency-mt-unsafe)
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

UcxTransport::~UcxTransport() {
  stopping_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

RankRouter& UcxTransport::router() const {
  GRAPEVINE_CHECK(router_ != nullptr, "a ucx transport is used before connect()");
  return *router_;
}

Expected<void> UcxTransport::connect(const std::vector<std::string>& addresses,
                                     const Placement& placement, Duration timeout,
                                     const ConnectOptions& options) {
  GRAPEVINE_CHECK(router_ == nullptr, "connect() twice");
  if (static_cast<std::int32_t>(addresses.size()) != placement.processes())
    return bad_input(
        fmt::format("{} addresses for {} processes", addresses.size(), placement.processes()));
  const auto deadline = Clock::now() + timeout;
  std::unique_lock<std::mutex> lock(engine_mutex_);
  router_ = std::make_unique<RankRouter>(placement);
  connecting_ = true;
  for (const std::int32_t process : options.absent) router_->process_absent(process);
  const Expected<void> begun = engine_->connect(addresses, placement, options);
  if (!begun) return begun;
  wake();
  const bool cancelled = wait_connected(lock, deadline, options);
  connecting_ = false;
  if (engine_->connected()) return {};
  if (cancelled) return Error{Errc::failed, "asked to stop"};
  const bool failed = engine_->connect_failed();
  return Error{failed ? Errc::peer_down : Errc::timeout,
               fmt::format("cannot connect to {}{}; is it running, and can this host reach it over "
                           "the devices given to UCX?",
                           engine_->unconnected(),
                           failed ? "" : fmt::format(" after {:g} s", to_seconds(timeout)))};
}

// Until all are connected, one cannot be, or the time is over. Where this process joins, a broken
// link may be that of a process whose loss is not known here yet. True: cancelled.
bool UcxTransport::wait_connected(std::unique_lock<std::mutex>& lock, Clock::time_point deadline,
                                  const ConnectOptions& options) {
  Clock::time_point whole = Clock::now();  // when no link was broken
  const auto decided = [&] {
    if (engine_->connected()) return true;
    const auto now = Clock::now();
    if (!engine_->connect_failed()) whole = now;
    return now - whole > (options.lost ? kLossIsReported : Duration::zero());
  };
  while (Clock::now() < deadline &&
         !engine_changed_.wait_until(
             lock, std::min<Clock::time_point>(deadline, Clock::now() + kCancelPoll), decided)) {
    if (options.cancelled && options.cancelled()) return true;
    skip_lost(options);
  }
  return false;
}

void UcxTransport::skip_lost(const ConnectOptions& options) {
  const Placement& placement = router().placement();
  for (std::int32_t p = 0; p < placement.processes(); ++p)
    if (p != placement.own_process && options.is_lost(p) && engine_->skip(p))
      router().process_absent(p);
}

Expected<void> UcxTransport::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  return router().attach(rank, std::move(inbox));
}

void UcxTransport::detach(Rank rank) {
  router().detach(rank);
  kick();
}

void UcxTransport::send(Envelope envelope) {
  const bool leaves = !router().placement().is_local(envelope.to);
  router().send(std::move(envelope), uses_device_memory_);
  if (leaves) kick();
}

void UcxTransport::process_down(std::int32_t process) {
  check_other(process);
  report({process, {}, {}});
}

void UcxTransport::expect_process(std::int32_t process, const std::string& host,
                                  const std::string& address) {
  check_other(process);
  report({process, host, address});
}

void UcxTransport::check_other(std::int32_t process) const {
  const Placement& placement = router().placement();
  GRAPEVINE_CHECK(
      process >= 0 && process < placement.processes() && process != placement.own_process,
      "a report of process ", process, " to process ", placement.own_process);
}

void UcxTransport::report(Report report) {
  {
    const std::lock_guard<std::mutex> lock(reported_mutex_);
    reported_.push_back(std::move(report));
  }
  wake();
}

// Makes sure that queued messages are sent: a progress thread that is awake reads the queue. One
// that sleeps takes some 50 us to wake up, so the sender itself hands its message to UCX: not with
// device memory, for which the driver would have to know the sender's thread.
void UcxTransport::kick() {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the queue first, then asleep_
  if (!asleep_) return;
  bool needs_progress = true;
  if (uses_device_memory_) return wake();
  if (const std::unique_lock<std::mutex> lock(engine_mutex_, std::try_to_lock); lock) {
    post_outgoing();
    needs_progress = engine_->busy();
  }
  if (needs_progress) wake();
}

void UcxTransport::wake() {
  const std::uint64_t one = 1;
  // Can only fail where the counter is full: then it is readable anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

// ---- The progress thread

void UcxTransport::run() {
  const std::shared_ptr<void> entered = enter_device_memory();  // until the engine has ended
  auto active_at = Clock::now();
  while (!stopping_) {
    if (work_once())
      active_at = Clock::now();
    else
      idle(active_at);
  }
  finish();
}

// Null where tensors are on the CPU.
std::shared_ptr<void> UcxTransport::enter_device_memory() {
  const std::shared_ptr<DeviceMemory>& memory = options_.device_memory;
  const std::lock_guard<std::mutex> lock(engine_mutex_);
  if (memory == nullptr || !engine_->reaches(*memory)) return nullptr;
  try {
    std::shared_ptr<void> entered = memory->enter();
    engine_->use(memory);
    uses_device_memory_ = true;
    spdlog::info(
        "ucx: messages with one tensor are sent to other processes from the device's memory and "
        "received there, all others by way of pinned host memory");
    return entered;
  } catch (const std::exception&) {
    spdlog::warn("ucx: tensors of a GPU are sent from pinned host memory: {}",
                 exception_line(std::current_exception()));
    return nullptr;
  }
}

// Progresses UCX and delivers received messages; false where there was nothing to do.
bool UcxTransport::work_once() {
  std::vector<ucx::Event> events;
  bool moved = false;
  RankRouter* router = nullptr;
  {
    const std::lock_guard<std::mutex> lock(engine_mutex_);
    router = router_.get();
    take_reports();
    post_outgoing();
    moved = engine_->progress();
    events = engine_->take_events();
    if (connecting_ && moved) engine_changed_.notify_all();
  }
  for (ucx::Event& event : events) {
    if (auto* message = std::get_if<Envelope>(&event))
      router->arrived(std::move(*message));
    else if (const auto* departure = std::get_if<Departure>(&event))
      router->rank_left(departure->rank);
    else if (const auto* left = std::get_if<ucx::ProcessLeft>(&event))
      router->process_left(left->process, left->reason);
    else if (const auto* back = std::get_if<ucx::ProcessBack>(&event))
      take_back(*router, back->process);
  }
  return moved;
}

// Its ranks are up before the process knows that it may begin: no message to them is dropped.
void UcxTransport::take_back(RankRouter& router, std::int32_t process) {
  router.process_up(process);
  const std::lock_guard<std::mutex> lock(engine_mutex_);
  engine_->answer_returned(process);
}

// Called with engine_mutex_ held, so that messages are posted in their order.
void UcxTransport::post_outgoing() {
  if (router_ == nullptr || !router_->has_outgoing()) return;
  for (Outgoing& outgoing : router_->take_outgoing()) engine_->post(std::move(outgoing));
}

// Called with engine_mutex_ held.
void UcxTransport::take_reports() {
  std::vector<Report> reports;
  {
    const std::lock_guard<std::mutex> lock(reported_mutex_);
    reports.swap(reported_);
  }
  for (const Report& report : reports)
    report.returns_at ? engine_->expect(report.process, report.host, *report.returns_at)
                      : engine_->lose(report.process);
}

void UcxTransport::idle(Clock::time_point& active_at) {
  // Where cores are few, the awaited process may need this one.
  if (Clock::now() - active_at < options_.spin) return std::this_thread::yield();
  sleep(kLongestSleep);
  active_at = Clock::now();
}

void UcxTransport::sleep(std::chrono::milliseconds longest) {
  asleep_ = true;
  std::atomic_thread_fence(std::memory_order_seq_cst);  // asleep_ first, then the queue
  bool armed = false;
  bool queued = false;
  {
    const std::lock_guard<std::mutex> lock(engine_mutex_);
    queued = router_ != nullptr && router_->has_outgoing();
    armed = !queued && engine_->arm();
  }
  if (!queued) {
    std::array<epoll_event, 2> ready;
    const auto timeout = armed ? longest : kNap;
    ::epoll_wait(events_.get(), ready.data(), ready.size(), static_cast<int>(timeout.count()));
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(wake_.get(), &count, sizeof count);
  }
  asleep_ = false;
}

template <class Done>
void UcxTransport::work_until(Clock::time_point deadline, const Done& done) {
  auto active_at = Clock::now();
  while (!done() && Clock::now() < deadline) {
    if (work_once())
      active_at = Clock::now();
    else if (Clock::now() - active_at >= options_.spin)
      sleep(kNap);
  }
}

// The others receive all messages, then the goodbye; their late messages are received, so that
// they can end as well, and dropped.
void UcxTransport::finish() {
  if (router_ != nullptr) {
    router_->close();
    {
      const std::lock_guard<std::mutex> lock(engine_mutex_);
      take_reports();
      post_outgoing();
      engine_->say_goodbye();
    }
    work_until(Clock::now() + options_.linger, [this] { return engine_->goodbyes_seen(); });
    engine_->close_endpoints();
    work_until(Clock::now() + kCloseTime, [this] { return engine_->quiet(); });
  }
  const std::lock_guard<std::mutex> lock(engine_mutex_);
  engine_.reset();
}

}  // namespace

bool ucx_built_in() { return true; }

Expected<std::unique_ptr<RemoteTransport>> make_ucx_transport(const UcxOptions& options) {
  Expected<std::unique_ptr<ucx::Engine>> engine = ucx::Engine::make(options);
  if (!engine) return engine.error();
  auto transport = std::make_unique<UcxTransport>(*std::move(engine), options);
  const Expected<void> started = transport->start();
  if (!started) return started.error();
  return std::unique_ptr<RemoteTransport>(std::move(transport));
}

}  // namespace grapevine
#endif
