// Credentials: what the two ends of a connection prove to each other before it carries anything
// else.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine::tcp {

// Certificates (TlsContext) or a secret (SecretCredentials). Constant; thread-safe.
class Credentials {
 public:
  Credentials() = default;
  virtual ~Credentials() = default;
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  // Streams whose handshake is the proof; this side accepted the connection, or dialled it.
  // `hosts`: the names and addresses (in numbers) of the dialled machine, for credentials that name
  // machines; empty: any.
  virtual std::unique_ptr<Stream> accepted(FileDescriptor socket) const = 0;
  virtual std::unique_ptr<Stream> dialled(FileDescriptor socket,
                                          std::vector<std::string> hosts) const = 0;
  // Whether its streams may hold bytes for which their sockets are not readable.
  virtual bool buffers() const = 0;
};

}  // namespace grapevine::tcp
