// The thread of the shared-memory transport: greetings, receiving, signs of life, and the ends of
// links.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "messages/text/log_limit.hpp"
#include "messages/text/log_limits.hpp"
#include "net/queued_bytes.hpp"
#include "net/rank_router.hpp"
#include "net/shm/shm.hpp"
#include "net/shm/shm_inbound.hpp"
#include "net/shm/shm_links.hpp"
#include "net/shm/shm_outbound.hpp"
#include "net/shm/shm_poller.hpp"

namespace grapevine::shm {

class ShmWire {
 public:
  // Errors (io).
  static Expected<std::unique_ptr<ShmWire>> listen(const std::string& name,
                                                   const ShmOptions& options);
  // Flushes, and ends all links.
  ~ShmWire();

  // Processes may connect from now on. Once.
  void start(std::shared_ptr<RankRouter> router, std::shared_ptr<ShmLinks> links);
  // A link that connect() has dialled.
  void adopt(LinkParts parts, std::int32_t process);
  // Sends the router's messages, on this thread or on one that does so already. Any thread.
  void post();
  // The bytes of the messages that wait for room in the queues of the links. Any thread.
  std::uint64_t queued_bytes() const { return *queued_bytes_; }
  void expect(std::int32_t process);
  void drop(std::int32_t process);

 private:
  // A connection whose process has not proved itself.
  struct Greeting {
    FileDescriptor socket;
    Clock::time_point deadline;
    std::optional<ShmHello> theirs;  // received
    std::optional<ShmHello> own;     // sent: their proof is awaited
  };
  struct Link {
    std::int32_t process = -1;
    FileDescriptor socket;
    std::unique_ptr<Inbound> inbound;    // the transport's thread
    std::unique_ptr<Outbound> outbound;  // guarded by post_mutex_
    std::shared_ptr<Lender> lender;
    std::uint64_t beats = 0;     // of the other process, when it last showed a sign of life,
    Clock::time_point alive_at;  // and when that was
    bool said_goodbye = false;
    std::uint64_t flushed = 0;     // while finishing: progress of the receiver,
    Clock::time_point flushed_at;  // and when it changed
  };
  using LinkPtr = std::shared_ptr<Link>;
  using Task = std::function<void()>;

  ShmWire(FileDescriptor listener, Poller poller, const ShmOptions& options);

  // ---- the thread
  void run();
  void work();
  bool work_once();
  void sleep(int longest_ms);
  void do_tasks();
  void do_events(int timeout_ms);
  void do_timers();
  int until_timer_ms() const;
  void give_task(Task task);

  // ---- greetings
  void accept_all();
  bool make_room();
  void on_greeting(Greeting& greeting);
  Expected<bool> take_packet(Greeting& greeting, Packet packet);
  Expected<bool> answer_hello(Greeting& greeting);
  Expected<bool> answer_proof(Greeting& greeting, Packet packet);
  void refuse(Greeting& greeting, const std::string& why);
  void forget(Greeting& greeting);
  void expire_greetings(Clock::time_point now);
  void open(LinkParts parts, std::int32_t process, const std::function<bool()>& answer = nullptr);

  // ---- links
  bool receive(const LinkPtr& link, int most);
  bool receive_each();
  void on_socket(const LinkPtr& link);
  bool beat_is_due(Clock::time_point now) const;
  void show_life(Clock::time_point now);
  void beat(Clock::time_point now);
  void end(const LinkPtr& link, const std::string& why);
  void lose(std::int32_t process, const std::string& why);
  LinkPtr link_of(std::int32_t process) const;
  void drain(const LinkPtr& link);
  template <class F>
  void guard(const LinkPtr& link, F f);

  // ---- sending
  void post_all();
  template <class F>
  void post_to(const LinkPtr& link, F f);

  // ---- the end
  void finish();
  bool flush(Clock::time_point limit);

  const ShmOptions options_;
  const Duration spin_;
  const std::shared_ptr<Arena> arena_ = Arena::of_process();
  FileDescriptor listener_;
  Poller poller_;

  // The transport's thread only.
  std::shared_ptr<RankRouter> router_;  // null until start()
  std::shared_ptr<ShmLinks> links_;     // "
  CodecLimits limits_;                  // valid from then on
  std::list<Greeting> greetings_;
  std::vector<LinkPtr> receiving_;  // all links
  std::map<int, LinkPtr> by_socket_;
  LogLimits dropped_;  // lines about unauthenticated connections,
  LogLimit failures_;  // and about errors that belong to no link
  Clock::time_point last_beat_;
  // When to listen again; none: this process listens. No descriptors were left.
  std::optional<Clock::time_point> listen_again_;
  bool finishing_ = false;
  // There was a link: new tensors lie in shared memory from then on, which without one nobody maps.
  bool lends_ = false;

  // Changed by the transport's thread under post_mutex_; read by it, and by senders under the
  // mutex.
  std::mutex post_mutex_;
  std::vector<LinkPtr> open_links_;  // by process; null: not open
  std::shared_ptr<RankRouter> posting_router_;
  std::atomic<std::uint64_t> post_requests_{0};
  const std::shared_ptr<QueuedTotal> queued_bytes_ = std::make_shared<QueuedTotal>(0);

  std::mutex tasks_mutex_;
  std::vector<Task> tasks_;  // guarded by tasks_mutex_
  std::atomic<bool> has_tasks_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: it uses all others
};

}  // namespace grapevine::shm
