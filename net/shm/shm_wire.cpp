#include "net/shm/shm_wire.hpp"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "messages/check.hpp"
#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"

namespace grapevine::shm {
namespace {

using namespace std::chrono_literals;

// Nothing waits longer for an event, so that a lost wake-up costs time but hangs nothing.
constexpr int kLongestSleepMs = 200;
constexpr int kFlushCheckMs = 20;
constexpr Clock::duration kPauseAfterFailure = 100ms;
constexpr Clock::duration kLookAtSockets = 1ms;  // while messages arrive without a pause
constexpr Clock::duration kUsualSpin = 50us;
constexpr int kRecordsAtOnce = 64;
constexpr int kLooks = 100;
// More records than a queue can have. A process that is given up may still write.
constexpr int kRecordsAtMost = kRingBytes / 8;

// Polling helps only where the awaited process runs at the same time.
Duration usual_spin() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return kUsualSpin;
  return CPU_COUNT(&cores) > 1 ? Duration(kUsualSpin) : Duration::zero();
}

// The received records of a link, for the router. Checks that its process may send them.
class Receiver final : public RecordSink {
 public:
  Receiver(RankRouter& router, std::int32_t process, bool& said_goodbye)
      : router_(router), process_(process), said_goodbye_(said_goodbye) {}

  Expected<void> admit(Rank from, Rank to) override {
    return check_sender(router_.placement(), process_, from, to);
  }
  void on_message(Envelope envelope) override { router_.arrived(std::move(envelope)); }
  Expected<void> on_departure(Rank rank) override {
    Expected<void> checked = check_departure(router_.placement(), process_, rank);
    if (checked) router_.rank_left(rank);
    return checked;
  }
  void on_goodbye() override { said_goodbye_ = true; }

 private:
  RankRouter& router_;
  const std::int32_t process_;
  bool& said_goodbye_;
};

}  // namespace

Expected<std::unique_ptr<ShmWire>> ShmWire::listen(const std::string& name,
                                                   const ShmOptions& options) {
  Expected<FileDescriptor> listener = listen_at(name);
  if (!listener) return listener.error();
  Expected<Poller> poller = Poller::make();
  if (!poller) return poller.error();
  if (!poller->add(listener->get())) return Error{Errc::io, kNoDescriptors};
  return std::unique_ptr<ShmWire>(new ShmWire(*std::move(listener), *std::move(poller), options));
}

ShmWire::ShmWire(FileDescriptor listener, Poller poller, const ShmOptions& options)
    : options_(options),
      spin_(options.spin >= Duration::zero() ? options.spin : usual_spin()),
      listener_(std::move(listener)),
      poller_(std::move(poller)),
      last_beat_(Clock::now()) {
  thread_ = std::thread([this] { run(); });
}

ShmWire::~ShmWire() {
  stopping_ = true;
  poller_.wake();
  thread_.join();
  if (lends_) arena_->leave();
}

// ---- Other threads

void ShmWire::start(std::shared_ptr<RankRouter> router, std::shared_ptr<ShmLinks> links) {
  give_task([this, router = std::move(router), links = std::move(links)] {
    router_ = router;
    links_ = links;
    limits_ = options_.limits;
    limits_.world_size = router->placement().world_size();
    {
      const std::lock_guard<std::mutex> lock(post_mutex_);
      open_links_.resize(static_cast<std::size_t>(router->placement().processes()));
      posting_router_ = router;
    }
    for (auto it = greetings_.begin(); it != greetings_.end();) on_greeting(*it++);
  });
}

void ShmWire::adopt(LinkParts parts, std::int32_t process) {
  give_task([this, parts = std::make_shared<LinkParts>(std::move(parts)), process] {
    if (!finishing_) open(std::move(*parts), process);
  });
}

void ShmWire::expect(std::int32_t process) {
  give_task([this, process] { links_->expect(process); });
}

void ShmWire::drop(std::int32_t process) {
  give_task([this, process] {
    const LinkPtr link = link_of(process);
    if (link == nullptr) return lose(process, "");
    drain(link);
    end(link, "");
  });
}

void ShmWire::give_task(Task task) {
  {
    const std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
    has_tasks_ = true;
  }
  poller_.wake();
}

// ---- Sending

// Threads do not wait for each other here: a thread that finds another one posting leaves its
// messages to it.
void ShmWire::post() {
  if (post_requests_.fetch_add(1) > 0) return;
  try {
    for (;;) {
      const std::uint64_t requests = post_requests_.load();
      post_all();
      if (post_requests_.fetch_sub(requests) == requests) return;
    }
  } catch (...) {  // above all a lack of memory; waiting messages leave with the next call
    post_requests_ = 0;
    throw;
  }
}

void ShmWire::post_all() {
  const std::lock_guard<std::mutex> lock(post_mutex_);
  if (posting_router_ == nullptr) return;
  if (posting_router_->has_outgoing())
    for (Outgoing& outgoing : posting_router_->take_outgoing())
      if (const LinkPtr link = open_links_[static_cast<std::size_t>(outgoing.process)])
        post_to(link, [&] { return link->outbound->push(std::move(outgoing.what)); });
  for (std::size_t p = 0; p < open_links_.size(); ++p)
    if (const Link* waiting = open_links_[p].get();
        waiting != nullptr && waiting->outbound->waits())
      post_to(LinkPtr(open_links_[p]), [&] { return waiting->outbound->pump(); });
}

// An error of one link ends that link. REQUIRES: post_mutex_ is held.
template <class F>
void ShmWire::post_to(const LinkPtr& link, F f) {
  std::string why;
  try {
    const Expected<void> sent = f();
    if (sent) return;
    why = loss_reason(sent.error());
  } catch (const std::exception&) {  // above all a lack of memory
    why = kErrorHere + exception_line(std::current_exception());
  }
  open_links_[static_cast<std::size_t>(link->process)] = nullptr;
  give_task([this, link, why] { end(link, why); });
}

// ---- The thread

// Errors of one link end that link. Without memory for something else this thread tries again.
void ShmWire::run() {
  while (!stopping_) {
    try {
      work();
    } catch (const std::exception&) {
      if (const auto more = failures_.admit())
        spdlog::error("shm: {}{}", exception_line(std::current_exception()), *more);
      std::this_thread::sleep_for(kPauseAfterFailure);
    }
  }
  finish();
}

void ShmWire::work() {
  Clock::time_point active_at = Clock::now();
  Clock::time_point looked_at = active_at;
  while (!stopping_) {
    bool moved = work_once();
    // Some looks for each reading of the clock and each yield, which take longer.
    for (int look = 0; look < kLooks && !moved && spin_ > Duration::zero(); ++look)
      moved = receive_each();
    const Clock::time_point now = Clock::now();
    if (moved) active_at = now;
    if (now - looked_at > kLookAtSockets) {
      do_events(0);
      do_timers();
      looked_at = now;
    }
    if (moved) continue;
    if (now - active_at < spin_) {
      ::sched_yield();  // where cores are few, the awaited process may need this one
      continue;
    }
    sleep(until_timer_ms());
    active_at = looked_at = Clock::now();
  }
}

bool ShmWire::work_once() {
  if (has_tasks_.load(std::memory_order_relaxed)) do_tasks();
  return receive_each();
}

void ShmWire::do_tasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard<std::mutex> lock(tasks_mutex_);
    tasks.swap(tasks_);
    has_tasks_ = false;
  }
  for (const Task& task : tasks) {
    try {
      task();
    } catch (const std::exception&) {  // above all a lack of memory, for a new link
      spdlog::error("shm: {}", exception_line(std::current_exception()));
    }
  }
}

bool ShmWire::receive_each() {
  bool moved = false;
  for (std::size_t i = 0; i < receiving_.size(); ++i) {
    if (receiving_[i]->inbound->empty()) continue;
    moved = receive(LinkPtr(receiving_[i]), kRecordsAtOnce) || moved;
  }
  return moved;
}

bool ShmWire::receive(const LinkPtr& link, int most) {
  bool moved = false;
  guard(link, [&] {
    Receiver receiver(*router_, link->process, link->said_goodbye);
    const Expected<int> taken = link->inbound->receive(receiver, most);
    if (!taken) return end(link, loss_reason(taken.error()));
    moved = *taken > 0;
    if (link->said_goodbye) return end(link, "");
    if (link->inbound->take_bell()) post();  // there may be room again
  });
  return moved;
}

// The records in the queue arrive before the loss of the link.
void ShmWire::drain(const LinkPtr& link) { receive(link, kRecordsAtMost); }

// An error of one link, above all a lack of memory, ends that link.
template <class F>
void ShmWire::guard(const LinkPtr& link, F f) {
  try {
    f();
  } catch (const std::exception&) {
    end(link, kErrorHere + exception_line(std::current_exception()));
  }
}

void ShmWire::sleep(int longest_ms) {
  arena_->collect();
  bool idle = true;
  for (const LinkPtr& link : receiving_) idle = link->inbound->sleep() && idle;
  do_events(idle ? longest_ms : 0);
  for (const LinkPtr& link : receiving_) link->inbound->wake();
  do_timers();
  post();  // should there have been room without a bell
}

void ShmWire::do_events(int timeout_ms) {
  for (const int descriptor : poller_.wait(timeout_ms)) {
    if (descriptor == listener_.get()) {
      accept_all();
      continue;
    }
    if (const auto found = by_socket_.find(descriptor); found != by_socket_.end()) {
      on_socket(LinkPtr(found->second));
      continue;
    }
    const auto greeting =
        std::find_if(greetings_.begin(), greetings_.end(),
                     [&](const Greeting& g) { return g.socket.get() == descriptor; });
    if (greeting != greetings_.end()) on_greeting(*greeting);
  }
}

void ShmWire::on_socket(const LinkPtr& link) {
  guard(link, [&] {
    const Expected<bool> open = link->inbound->read_packets();
    if (!open) return end(link, loss_reason(open.error()));
    if (*open) {
      if (link->inbound->take_bell()) post();  // there may be room again
      return;
    }
    drain(link);
    end(link, link->said_goodbye ? "" : "the connection was closed");
  });
}

void ShmWire::do_timers() {
  const Clock::time_point now = Clock::now();
  if (listen_again_ && now >= *listen_again_) {
    listen_again_.reset();
    if (!poller_.add(listener_.get())) listen_again_ = now + 1s;
  }
  if (!greetings_.empty()) expire_greetings(now);
  if (beat_is_due(now)) beat(now);
}

bool ShmWire::beat_is_due(Clock::time_point now) const {
  return options_.heartbeat > Duration::zero() && now - last_beat_ >= options_.heartbeat;
}

int ShmWire::until_timer_ms() const {
  if (options_.heartbeat <= Duration::zero()) return kLongestSleepMs;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(last_beat_ + options_.heartbeat - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, kLongestSleepMs));
}

void ShmWire::show_life(Clock::time_point now) {
  last_beat_ = now;
  for (const LinkPtr& link : receiving_) link->outbound->beat();
}

void ShmWire::beat(Clock::time_point now) {
  // This process itself may have been suspended: then the others need time to show a sign.
  const bool late = now - last_beat_ > 2 * options_.heartbeat;
  show_life(now);
  std::vector<LinkPtr> silent;
  for (const LinkPtr& link : receiving_) {
    const std::uint64_t beats = link->inbound->beats();
    if (late || beats != link->beats) link->alive_at = now;
    link->beats = beats;
    if (now - link->alive_at > options_.heartbeat_timeout) silent.push_back(link);
  }
  for (const LinkPtr& link : silent)
    end(link, "it showed no sign of life for " + silence_text(options_.heartbeat_timeout));
}

// ---- ShmLinks

ShmWire::LinkPtr ShmWire::link_of(std::int32_t process) const {
  for (const LinkPtr& link : receiving_)
    if (link->process == process) return link;
  return nullptr;
}

// A process that has its answer may be sent to at once, by any thread: until the link is open,
// these wait for post_mutex_.
void ShmWire::open(LinkParts parts, std::int32_t process, const std::function<bool()>& answer) {
  if (const LinkPtr old = link_of(process)) end(old, "it has connected again");
  if (!std::exchange(lends_, true)) arena_->enter();
  auto link = std::make_shared<Link>();
  link->process = process;
  link->socket = std::move(parts.socket);
  const int socket = link->socket.get();
  link->lender = std::make_shared<Lender>(parts.own.outbox, std::move(parts.watch));
  link->outbound = std::make_unique<Outbound>(parts.own.outbox, socket, link->lender, arena_,
                                              options_.copied_bytes);
  link->outbound->queued_bytes().count_in(queued_bytes_);
  link->inbound = std::make_unique<Inbound>(std::move(parts.inbox), socket,
                                            std::move(parts.own.lease), limits_);
  link->alive_at = link->flushed_at = Clock::now();
  arena_->add(link->lender);
  receiving_.push_back(link);
  guard(link, [&] {
    by_socket_[socket] = link;
    bool answered = true;
    {
      const std::lock_guard<std::mutex> lock(post_mutex_);
      if (links_->open(process)) router_->process_up(process);
      answered = answer == nullptr || answer();
      open_links_[static_cast<std::size_t>(process)] = link;
    }
    if (!answered) return end(link, "it has ended");
    if (!poller_.add(socket)) end(link, std::string(kErrorHere) + kNoDescriptors);
  });
}

// Ends the link because of the other side. An empty `why`: the process left, or its loss was
// reported from elsewhere. Nothing where the link has ended.
void ShmWire::end(const LinkPtr& ended, const std::string& why) {
  // `ended` may be the element that is erased. NOLINTNEXTLINE(performance-unnecessary-copy-*)
  const LinkPtr link = ended;
  const auto found = std::find(receiving_.begin(), receiving_.end(), link);
  if (found == receiving_.end()) return;
  receiving_.erase(found);
  by_socket_.erase(link->socket.get());
  poller_.remove(link->socket.get());
  {
    const std::lock_guard<std::mutex> lock(post_mutex_);
    LinkPtr& open = open_links_[static_cast<std::size_t>(link->process)];
    if (open == link) open = nullptr;
    link->outbound->queued_bytes().count_in(nullptr);
  }
  // The other process may live and read on: the payloads that it was lent are kept for it.
  link->lender->orphan();
  ::shutdown(link->socket.get(), SHUT_RDWR);
  lose(link->process, why);
}

void ShmWire::lose(std::int32_t process, const std::string& why) {
  links_->lose(process);
  if (finishing_) return;
  // The loss of a process whose ranks have all left has no effect.
  if (router_->process_left(process, why) && !why.empty())
    spdlog::warn("shm: the link to {} is lost: {}", links_->name(process), why);
}

// ---- The end

// The others receive all messages. Their own messages are received meanwhile, so that they can end
// as well, and dropped.
void ShmWire::finish() {
  finishing_ = true;
  do_tasks();
  poller_.remove(listener_.get());
  listener_.reset();
  greetings_.clear();
  if (router_ == nullptr) return;
  router_->close();
  post();
  for (const LinkPtr& link : std::vector<LinkPtr>(receiving_)) {
    const std::lock_guard<std::mutex> lock(post_mutex_);
    post_to(link, [&] { return link->outbound->say_goodbye(); });
  }
  const Clock::time_point limit = Clock::now() + options_.flush_limit;
  for (const LinkPtr& link : receiving_) link->flushed_at = Clock::now();
  while (!flush(limit)) {
    bool idle = true;
    for (const LinkPtr& link : receiving_) idle = link->inbound->sleep() && idle;
    do_events(idle ? kFlushCheckMs : 0);
    work_once();
    if (const auto now = Clock::now(); beat_is_due(now)) show_life(now);  // to slow readers
    post();
  }
  while (!receiving_.empty()) end(LinkPtr(receiving_.front()), "");
}

// True: nothing is left to write.
bool ShmWire::flush(Clock::time_point limit) {
  const Clock::time_point now = Clock::now();
  bool flushed = true;
  for (const LinkPtr& link : std::vector<LinkPtr>(receiving_)) {
    std::unique_lock<std::mutex> lock(post_mutex_);
    const bool done = link->outbound->said_goodbye();
    const std::uint64_t progress = link->outbound->progress();
    lock.unlock();
    if (done) continue;
    if (progress != link->flushed) link->flushed_at = now;
    link->flushed = progress;
    if (now < limit && now - link->flushed_at <= options_.flush_timeout) {
      flushed = false;
      continue;
    }
    spdlog::warn("shm: {} stopped reading; pending messages were discarded",
                 links_->name(link->process));
    end(link, "");
  }
  return flushed;
}

}  // namespace grapevine::shm
