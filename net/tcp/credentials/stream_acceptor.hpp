// StreamAcceptor: the listening side of connections that are not those of the tcp transport.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "messages/expected.hpp"
#include "net/tcp/credentials/credentials.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine::tcp {

// Accepts connections and completes their handshakes, in a thread of its own: a connection without
// the credentials reaches nothing else. The handshakes have Limits; the oldest ends where there is
// no room for a new one, since a process of the job proves itself at once, but another program may
// keep its connections silent. A connection that fails has a log line, at a bounded rate.
class StreamAcceptor {
 public:
  // Of handshakes: how many at a time, and how long each.
  struct Limits {
    std::size_t most = 256;
    std::chrono::nanoseconds longest = std::chrono::seconds(10);
  };

  // Takes a stream whose handshake is complete and which the other side knows to be accepted. On
  // the thread of this object.
  using OnStream = std::function<void(std::unique_ptr<Stream>)>;

  // Connections wait in the system until start(). An empty `host`: all interfaces;
  // port 0: any that is free; `name`: of the listener, for the log. Errors (io): the address cannot
  // be listened on.
  static Expected<std::unique_ptr<StreamAcceptor>> listen(
      const std::string& host, std::uint16_t port, std::shared_ptr<const Credentials> credentials,
      std::string name, Limits limits);
  static Expected<std::unique_ptr<StreamAcceptor>> listen(
      const std::string& host, std::uint16_t port, std::shared_ptr<const Credentials> credentials,
      std::string name) {
    return listen(host, port, std::move(credentials), std::move(name), Limits());
  }
  // Once.
  void start(OnStream on_stream);
  // Afterwards OnStream is not called any more. REQUIRES: not on the thread of this object.
  ~StreamAcceptor();
  StreamAcceptor(const StreamAcceptor&) = delete;
  StreamAcceptor& operator=(const StreamAcceptor&) = delete;

  std::uint16_t port() const;

 private:
  struct Impl;
  explicit StreamAcceptor(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine::tcp
