// The listening socket of a transport.
#pragma once
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "messages/text/log_limit.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine::tcp {

// Listens from open() on; connections wait in the system until accept(). From then on all calls are
// on the event loop.
class Listener {
 public:
  explicit Listener(asio::io_context& loop) : watched_(loop), pause_(loop) {}

  // Errors (io): the address cannot be listened on.
  Expected<void> open(const std::string& host, std::uint16_t port);
  std::uint16_t port() const { return port_; }

  using OnConnection = std::function<void(FileDescriptor)>;
  void accept(OnConnection on_connection);
  void close();

 private:
  void wait();
  void accept_some();

  asio::posix::stream_descriptor watched_;
  asio::steady_timer pause_;
  std::uint16_t port_ = 0;
  OnConnection on_connection_;
  LogLimit failures_;
};

}  // namespace grapevine::tcp
