// The connections of one transport, from their greeting to their end.
#pragma once
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "messages/text/log_limits.hpp"
#include "net/rank_router.hpp"
#include "net/receive_pool.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/tcp_connection.hpp"
#include "net/tcp/tcp_links.hpp"
#include "net/tcp/tcp_listener.hpp"
#include "net/tcp/tcp_routes.hpp"

namespace grapevine::tcp {

// Accepts and greets, sends heartbeats, reports losses, ends. After listen() all of it runs on the
// event loop.
class Hub final : public ConnectionOwner {
 public:
  // `routes`: receives the outbox of every process that is connected.
  Hub(asio::io_context& loop, const TcpOptions& options, Routes& routes)
      : loop_(loop),
        options_(options),
        routes_(routes),
        pool_(options.keep_receive_bytes),
        listener_(loop),
        timer_(loop) {}

  // Errors (io): the address cannot be listened on.
  Expected<void> listen() { return listener_.open(options_.host, options_.port); }
  std::uint16_t port() const { return listener_.port(); }

  // Connections are accepted, and wait for start().
  void accept();
  void start(std::shared_ptr<RankRouter> router, std::shared_ptr<Links> links);
  // A connection that was dialled, after the greetings.
  void adopt(std::unique_ptr<Stream> stream, std::int32_t process);
  void drop(std::int32_t process);
  void expect(std::int32_t process);
  // Sends the pending frames, within the bounds of the options. `finished` is called at the end of
  // the last connection, and ends the event loop.
  void finish(std::function<void()> finished);
  // Ends all connections after an exception, which has ended the event loop.
  void fail(const std::exception_ptr& problem);

  void on_hello(Connection& c, const std::byte* hello) override;
  void on_proof(Connection& c, const std::byte* proof) override;
  void on_failed(Connection& c, const std::string& why) override { end(c, why); }
  void on_closed(Connection& c) override;

 private:
  void on_connection(FileDescriptor socket);
  void greet(FileDescriptor socket);
  bool make_room();
  Connection& add(std::unique_ptr<Stream> stream);
  Connection* find_process(std::int32_t process);
  void answer(Connection& c);
  void open(Connection& c, std::int32_t process);
  void beat();
  void end(Connection& c, const std::string& why);
  void erase(Connection& c);
  void lose(std::int32_t process, const std::string& why);
  void check_stalls();
  void check_finished();
  template <class F>
  void after(Clock::duration time, F f);
  std::string silence() const;

  asio::io_context& loop_;
  const TcpOptions options_;
  Routes& routes_;
  ReceivePool pool_;
  Listener listener_;
  asio::steady_timer timer_;  // of the next heartbeat, or of the next look for stalls

  std::shared_ptr<RankRouter> router_;  // null until start()
  std::shared_ptr<Links> links_;        // "
  CodecLimits limits_;                  // valid from then on
  std::set<std::shared_ptr<Connection>> connections_;
  LogLimits dropped_;  // lines about unauthenticated connections
  Clock::time_point last_beat_;
  std::function<void()> finished_;  // null until finish()
  Clock::time_point finish_by_;
};

}  // namespace grapevine::tcp
