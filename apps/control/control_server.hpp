// ControlServer: where a running job is asked and changed, over HTTP.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "actors/run/control/control_hub.hpp"
#include "apps/control/run_description.hpp"
#include "messages/expected.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

// Answers as long as it lives, in threads of its own; docs/control.md describes requests and
// answers. Malformed and unauthenticated requests change nothing and are logged, a line for each
// kind at a bounded rate.
class ControlServer {
 public:
  // On the Unix socket FOLDER/control.sock, which only this user may open; one that an ended
  // process has left is replaced. REQUIRES: no other run uses the folder. Errors (io): it cannot
  // listen there.
  static Expected<std::unique_ptr<ControlServer>> on_socket(const std::string& folder,
                                                            std::shared_ptr<ControlHub> hub,
                                                            const RunDescription& facts);
  // On TCP, for clients that know `secret`, and with `tls` have a certificate. Errors (bad_input):
  // it cannot listen there; the secret is empty.
  static Expected<std::unique_ptr<ControlServer>> on_port(
      const ListenAddress& address, const std::string& secret, std::shared_ptr<ControlHub> hub,
      const RunDescription& facts, std::shared_ptr<const tcp::TlsContext> tls = nullptr);
  ~ControlServer();
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  std::uint16_t port() const;  // of on_port()

 private:
  struct Impl;
  explicit ControlServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine
