// BoundedServer: an HTTP server that no client can exhaust.
#pragma once
#include <httplib.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "messages/expected.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

// One request a connection, in kThreads threads of its own. A request has kLongestRequest bytes and
// arrives within kReadTimeout, with its answer it has kRequestTimeout. kMostWaiting connections
// may wait or be served, further ones are cut off. Bodies are taken as they come, and answers given
// as a whole, whatever encodings and ranges the request names.
class BoundedServer final : public httplib::Server {
 public:
  static constexpr int kThreads = 8;
  static constexpr std::size_t kMostWaiting = 128;
  static constexpr std::size_t kLongestRequest = 16 * 1024;
  static constexpr std::chrono::seconds kReadTimeout{2};
  static constexpr std::chrono::seconds kRequestTimeout{10};

  BoundedServer();
  // REQUIRES: serve() was not called, or stop_serving() has returned true.
  ~BoundedServer() override = default;

  // Clients need a certificate of the same CA. REQUIRES: before serve().
  void require_tls(std::shared_ptr<const tcp::TlsContext> tls) { tls_ = std::move(tls); }
  // Called with a phrase for each client that is cut off without an answer, on any thread.
  // REQUIRES: before serve().
  void on_cut_off(std::function<void(const std::string& why)> call) { cut_off_ = std::move(call); }
  // Binds it: to that address alone, which no other program that listens has. The port. Errors
  // (io): the system's text, and what to do.
  Expected<std::uint16_t> listen_at(const ListenAddress& address);
  // REQUIRES: bound to an address.
  void serve();
  // False: a client that is served holds on. Then this object must stay, with all that handlers
  // use.
  bool stop_serving();
  // That object stays for as long as the process lives.
  void abandon() { serving_.detach(); }

 private:
  static void keep_plain(httplib::Request& request);
  bool process_and_close_socket(socket_t socket) override;

  std::shared_ptr<const tcp::TlsContext> tls_;  // null: without TLS
  std::function<void(const std::string&)> cut_off_;
  std::future<void> ended_;  // ready: no connection is served any more
  std::thread serving_;
};

}  // namespace grapevine
