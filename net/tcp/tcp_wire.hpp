// The event loop of the TCP transport, and the thread that it has.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "net/rank_router.hpp"
#include "net/tcp/tcp.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine::tcp {

// Listens from construction on; greets, sends and receives from start() on. Everything that touches
// a connection happens on the event loop, but writes of threads that send. Thread-safe.
class Wire {
 public:
  // Errors (io): the address cannot be listened on.
  static Expected<std::unique_ptr<Wire>> listen(const TcpOptions& options);
  // Sends all pending data (final flush), within the bounds of the options, then ends all
  // connections. An event loop that an Inbox blocks for longer is abandoned, with all that it uses.
  ~Wire();

  std::uint16_t port() const;

  // Delivers received messages to `router`; `names`: of the processes, for errors and the log;
  // `token`: a connection must know it; `absent`: processes that are lost. Called once.
  void start(std::shared_ptr<RankRouter> router, std::vector<std::string> names,
             const JobToken& token, const std::vector<std::int32_t>& absent = {});
  // The connection to a process that was dialled, after the hellos. REQUIRES (GRAPEVINE_CHECK, on
  // the event loop): there is such a process.
  void adopt(std::unique_ptr<Stream> stream, std::int32_t process);
  // See ProcessLinks. `timeout` is for the text alone.
  Expected<void> wait_connected(Clock::time_point deadline, const std::string& timeout,
                                const Cancelled& cancelled, const LostMeanwhile& lost = {});

  // Sends the outgoing messages of the router; those for a process that is down are dropped.
  void send();
  // Bytes that wait for the sockets.
  std::uint64_t queued_bytes() const;
  // Drops the process: its ranks go down.
  void drop(std::int32_t process);
  // A process that is lost may connect again.
  void expect(std::int32_t process);

 private:
  struct Impl;
  explicit Wire(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine::tcp
