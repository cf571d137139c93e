// The broker of the TCP transport: all that happens on its event loop.
#pragma once
#include <atomic>
#include <caf/io/broker.hpp>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "messages/text/log_limit.hpp"
#include "net/rank_router.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/tcp_connection.hpp"
#include "net/tcp/tcp_links.hpp"

namespace grapevine::tcp {

using StartAtom = caf::atom_constant<caf::atom("start")>;
using AdoptAtom = caf::atom_constant<caf::atom("adopt")>;  // a descriptor, its process
using WakeAtom = caf::atom_constant<caf::atom("wake")>;
using DropAtom = caf::atom_constant<caf::atom("drop")>;      // a process
using ExpectAtom = caf::atom_constant<caf::atom("expect")>;  // a process
using FinishAtom = caf::atom_constant<caf::atom("finish")>;

// Shared by the broker and the threads that send and wait.
struct Shared {
  explicit Shared(const TcpOptions& o) : options(o) {}

  const TcpOptions options;
  std::atomic<bool> woken{false};  // the broker is about to take the router's outgoing messages
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by mutex.
  std::shared_ptr<RankRouter> router;  // null until start(); then constant
  std::shared_ptr<Links> links;        // "
  bool finished = false;               // all connections have ended, and no others follow
};

// Accepts, greets, sends and receives, for one transport. All of it runs on the event loop.
class Broker {
 public:
  Broker(std::shared_ptr<Shared> shared, caf::io::doorman_ptr doorman)
      : shared_(std::move(shared)), options_(shared_->options), doorman_(std::move(doorman)) {}

  caf::behavior run(caf::io::broker* self);

 private:
  // ---- connections
  void on_start();
  void on_adopt(int descriptor, std::int32_t process);
  void on_connection(caf::io::connection_handle handle);
  void on_expired(std::uint64_t serial);
  void on_data(const caf::io::new_data_msg& message);
  void on_hello(Connection& c, const std::byte* data);
  void answer(Connection& c);
  void open(Connection& c, std::int32_t process);
  void refuse(Connection& c, Refusal why);
  Connection& add(caf::io::connection_handle handle);
  Connection* find(caf::io::connection_handle handle);
  Connection* find_process(std::int32_t process);

  // ---- frames
  void on_wake();
  std::set<caf::io::connection_handle> queue_outgoing();
  void pump_each(const std::set<caf::io::connection_handle>& handles);
  void pump(Connection& c);
  void on_written(const caf::io::data_transferred_msg& message);
  void set_read_size(Connection& c);
  void on_beat();

  // ---- the end
  template <class F>
  void guard(caf::io::connection_handle handle, F f);
  void on_exception(const std::exception_ptr& problem);
  void on_closed(caf::io::connection_handle handle);
  void on_drop(std::int32_t process);
  void on_expect(std::int32_t process);
  void end(Connection& c, const std::string& why);
  void abandon(caf::io::connection_handle handle);
  void lose(std::int32_t process, const std::string& why);
  void on_finish();
  void on_stall_check();
  void say_goodbye(Connection& c);
  void check_finished();

  std::string where(const Connection& c);
  std::string silence() const;

  const std::shared_ptr<Shared> shared_;
  const TcpOptions& options_;
  caf::io::doorman_ptr doorman_;  // until run()
  caf::io::accept_handle acceptor_;
  caf::io::broker* self_ = nullptr;
  std::shared_ptr<RankRouter> router_;  // null until on_start()
  std::shared_ptr<Links> links_;        // "
  CodecLimits limits_;                  // valid from then on
  std::map<caf::io::connection_handle, Connection> connections_;
  std::uint64_t serials_ = 0;
  LogLimit dropped_;  // lines about unauthenticated connections
  Clock::time_point last_beat_;
  bool finishing_ = false;
  Clock::time_point finish_by_;
};

}  // namespace grapevine::tcp
