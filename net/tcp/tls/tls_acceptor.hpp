// TlsAcceptor: the listening side of connections that are not those of the tcp transport.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/tcp/tcp_stream.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine::tcp {

// Accepts connections and completes their handshakes, in a thread of its own: a connection without
// a certificate of the CA reaches nothing else. At most kMostHandshakes connections are in their
// handshake at a time, each for kHandshakeTimeout; a connection that fails has a log line, at a
// bounded rate.
class TlsAcceptor {
 public:
  static constexpr std::size_t kMostHandshakes = 256;
  static constexpr std::chrono::seconds kHandshakeTimeout{10};

  // Takes a stream whose handshake is complete and which the other side knows to be accepted. On
  // the thread of this object.
  using OnStream = std::function<void(std::unique_ptr<Stream>)>;

  // Connections wait in the system until start(). An empty `host`: all interfaces, by IPv4 alone;
  // port 0: any that is free; `name`: of the listener, for the log. Errors (io): the address cannot
  // be listened on.
  static Expected<std::unique_ptr<TlsAcceptor>> listen(const std::string& host, std::uint16_t port,
                                                       std::shared_ptr<const TlsContext> tls,
                                                       std::string name);
  // Once.
  void start(OnStream on_stream);
  // Afterwards OnStream is not called any more. REQUIRES: not on the thread of this object.
  ~TlsAcceptor();
  TlsAcceptor(const TlsAcceptor&) = delete;
  TlsAcceptor& operator=(const TlsAcceptor&) = delete;

  std::uint16_t port() const;

 private:
  struct Impl;
  explicit TlsAcceptor(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine::tcp
