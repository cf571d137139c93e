// The certificates of a process, for mutual TLS between the processes of a job.
#pragma once
#include <memory>
#include <string>

#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_stream.hpp"

struct ssl_ctx_st;

namespace grapevine::tcp {

// TLS 1.3. Each side needs a certificate that the CA has signed and that is valid now; the names in
// it do not matter: the CA signs for this cluster alone, and each of its processes may connect to
// each other one. The files are read once. Thread-safe.
class TlsContext {
 public:
  // Of a folder with ca.pem, cert.pem and key.pem. Errors (bad_input): a file that is missing or is
  // none, a certificate that is not valid now or not of that CA, a key of another certificate, a
  // key that other users may read.
  static Expected<std::shared_ptr<const TlsContext>> load(const std::string& folder);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // An encrypted stream; this side accepted the connection, or dialled it.
  std::unique_ptr<Stream> accepted(FileDescriptor socket) const;
  std::unique_ptr<Stream> dialled(FileDescriptor socket) const;

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* const context_;
};

// TlsContext::load() of the folder that --tls names; null where that is empty. Errors (bad_input)
// begin with the option.
Expected<std::shared_ptr<const TlsContext>> load_certificates(const std::string& folder);

}  // namespace grapevine::tcp
