// The protocol of the UCX transport: links to the other processes, messages in flight, and received
// messages. Compiled only with UCX (GRAPEVINE_UCX).
#pragma once
#include <ucp/api/ucp.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "messages/codec.hpp"
#include "net/device_memory.hpp"
#include "net/queued_bytes.hpp"
#include "net/rank_router.hpp"
#include "net/receive_pool.hpp"
#include "net/ucx/ucx.hpp"
#include "net/ucx/ucx_wire.hpp"
#include "net/ucx/ucx_worker.hpp"

namespace grapevine::ucx {

struct ProcessLeft {
  std::int32_t process = 0;
  std::string reason;  // why it was lost; empty: it sent goodbye, or was reported dead
};

// A process takes the place of one that was lost: its messages follow.
struct ProcessBack {
  std::int32_t process = 0;
};

// Received from other processes, in the order in which it takes effect.
using Event = std::variant<Envelope, Departure, ProcessLeft, ProcessBack>;

// A link is open from connect() until the process at its other end sends goodbye or is lost; that
// ends in exactly one ProcessLeft, its last event. A process that returns has a new link, which its
// ProcessBack opens.
//
// Not thread-safe: calls are to be made one at a time, from any thread.
class Engine {
 public:
  static Expected<std::unique_ptr<Engine>> make(const UcxOptions& options);
  // Abandons messages in flight. What UCX still uses is leaked: its objects, and the memory that it
  // has begun to receive into.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::string address() const;
  int descriptor() const { return worker_->descriptor(); }

  // Messages are sent from and received into `memory` from now on. REQUIRES: UCX reaches it; all
  // further calls but connect() come from the thread that has entered it.
  void use(std::shared_ptr<DeviceMemory> memory) { device_memory_ = std::move(memory); }
  bool reaches(const DeviceMemory& memory) const;

  // Begins to connect to all other processes but the absent ones: to those behind this one, while
  // those before it connect to this one, as do all others where it joins. Errors (bad_input, io):
  // an address that is none.
  Expected<void> connect(const std::vector<std::string>& addresses, const Placement& placement,
                         const ConnectOptions& options);
  // Both ends of every link have received the hello of the other.
  bool connected() const;
  // The run has lost it before it was connected: as if it had been absent. False, and of no effect:
  // it is connected.
  bool skip(std::int32_t process);
  // The first process that is not connected, and why. REQUIRES: !connected().
  std::string unconnected() const;
  // A link broke before it was connected.
  bool connect_failed() const;

  // Posts a message or a departure to UCX; dropped where the process has left.
  void post(Outgoing outgoing);
  // True if anything moved.
  bool progress();
  // False: progress() is needed now.
  bool arm() { return worker_->arm(); }
  // A posted message needs progress() to be sent.
  bool busy() const {
    return !sends_.empty() || !broken_.empty() || !to_answer_.empty() || !events_.empty();
  }
  // The bytes of the messages that UCX has not finished to send.
  QueuedBytes& queued_bytes() { return queued_bytes_; }
  std::vector<Event> take_events();

  // The process is known to be dead: a ProcessLeft, unless there was one, behind all that has
  // arrived.
  void lose(std::int32_t process);
  // A lost process, or one that was absent, returns with that address(): begins to connect to it.
  // Outside of callbacks.
  void expect(std::int32_t process, const std::string& host, const std::string& address);
  // Its ProcessBack has taken effect: it may begin. Nothing where it is lost again.
  void answer_returned(std::int32_t process);

  // Sends goodbye to all other processes: nothing more follows.
  void say_goodbye();
  // Every process that is not lost has received everything.
  bool goodbyes_seen() const;
  // Begins to close all endpoints: at once those of processes that have not received everything.
  void close_endpoints();
  // UCX uses no memory of ours any more: the destructor ends UCX's objects as well.
  bool quiet() const;

 private:
  struct Link;
  struct Send;
  struct Receive;

  Engine(std::unique_ptr<Worker> worker, const UcxOptions& options);

  Expected<std::unique_ptr<Link>> make_link(std::int32_t process, const std::string& address);
  Expected<void> open_link(Link& link);
  void repeat_hellos();
  void send(Link& link, Prefix prefix, const EncodedHeader& header,
            std::vector<FrozenTensor> payload);
  void send_bare(Link& link, Kind kind, Rank rank = 0);
  void forget(Send& sent);

  ucs_status_t on_active_message(const void* bytes, std::size_t size, void* data,
                                 std::size_t length, bool is_rendezvous);
  void take_hello(const Prefix& prefix);
  void take_notice(Link& link, const Prefix& prefix);
  void answer_hellos();
  Link* sender_of(const Prefix& prefix);
  bool number_is_new(const Link& link, std::uint64_t number) const;
  ucs_status_t take_message(Link& link, std::uint64_t number, DecodedHeader header, void* data,
                            bool is_rendezvous);
  Expected<DecodedHeader> check_header(const Link& link, const std::byte* header, std::size_t bytes,
                                       std::size_t length) const;
  bool allocate(Receive& receive);
  bool allocate_on_device(Receive& receive);
  bool is_on_device(const std::vector<FrozenTensor>& payload) const;
  void set_memory(ucp_request_param_t& param) const;
  void begin_announced();
  void start(Receive& receive);
  void received(Receive& receive, ucs_status_t status);
  void in_order(Link& link, std::uint64_t number, std::optional<Event> event);
  void take_effect(Link& link, Event event);
  void fail(Link& link, const std::string& why);
  void report_refused(const std::string& what);
  // Runs the work of a callback of UCX. Nothing may be thrown through UCX, which is C: `link`, or
  // every link where that is null, is given up by the next progress() instead.
  template <class F>
  void guard(Link* link, F f) noexcept;
  void fail_overwhelmed();
  void give_up(Link& link);
  void abandon(Link& link);
  void close_broken();
  void keep_begun_receives();
  void release_unfetchable();

  static void on_sent(void* request, ucs_status_t status, void* user_data);
  static void on_received(void* request, ucs_status_t status, std::size_t length, void* user_data);
  static ucs_status_t on_am(void* arg, const void* header, std::size_t header_length, void* data,
                            std::size_t length, const ucp_am_recv_param_t* param);
  static void on_endpoint_error(void* arg, ucp_ep_h endpoint, ucs_status_t status);

  const std::uint64_t token_;
  ReceivePool pool_;
  std::shared_ptr<DeviceMemory> device_memory_;  // null: all tensors are on the CPU
  Placement placement_;
  CodecLimits limits_;
  std::vector<std::unique_ptr<Link>> links_;   // by process; null: the own one, and absent ones
  std::vector<std::unique_ptr<Link>> former_;  // of processes that have returned: UCX knows them
  std::vector<Link*> to_answer_;               // their hellos, outside of callbacks
  std::vector<Prefix> early_hellos_;           // arrived before connect()
  std::list<Send> sends_;                      // in flight
  QueuedBytes queued_bytes_;                   // "
  std::list<Send> spare_;                      // completed sends: their memory, for later ones
  std::list<Receive> receives_;                // announced, or in progress
  std::size_t announced_ = 0;                  // of those the former
  std::vector<Event> events_;
  std::vector<Link*> broken_;   // whose endpoints are to be closed by force, outside of callbacks
  std::vector<void*> closing_;  // UCX's requests to close endpoints
  std::uint64_t refused_ = 0;   // messages of processes outside the job
  bool saying_goodbye_ = false;
  bool any_lost_ = false;
  bool overwhelmed_ = false;  // a callback has thrown: fail_overwhelmed() is due
  bool greets_ = false;       // a hello is not acknowledged
  std::chrono::steady_clock::time_point last_release_, last_hello_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace grapevine::ucx
