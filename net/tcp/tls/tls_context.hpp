// The certificates of a process, for mutual TLS between the processes of a job.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/credentials/credentials.hpp"
#include "net/tcp/tcp_stream.hpp"

struct ssl_ctx_st;

namespace grapevine::tcp {

// A file in a folder of certificates, whatever it contains: names are compared. Its absence leaves
// certificates of other tools, which may name nothing that is dialled, as usable as they were.
inline constexpr char kCheckHosts[] = "check-hosts";
bool checks_hosts(const std::string& folder);

// TLS 1.3. Each side needs a certificate that the CA has signed and that is valid now: the CA signs
// for this cluster alone, and each of its processes may connect to each other one. Where the folder
// has a file kCheckHosts, a dialling side also compares the names in the certificate of the other
// side (its subjectAltName alone, RFC 9525) with what it dialled. The files are read once.
// Thread-safe.
class TlsContext final : public Credentials {
 public:
  // Of a folder with ca.pem, cert.pem and key.pem. Errors (bad_input): a file that is missing or is
  // none, a certificate that is not valid now or not of that CA, a key of another certificate, a
  // key that other users may read; with kCheckHosts, a certificate without a name.
  static Expected<std::shared_ptr<const TlsContext>> load(const std::string& folder);
  ~TlsContext() override;

  // Encrypted streams. `hosts`: where names are compared, the certificate needs one of them.
  std::unique_ptr<Stream> accepted(FileDescriptor socket) const override;
  std::unique_ptr<Stream> dialled(FileDescriptor socket,
                                  std::vector<std::string> hosts) const override;
  bool buffers() const override { return true; }

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}

  ssl_ctx_st* const context_;
  bool checks_hosts_ = false;  // constant once loaded
};

// TlsContext::load() of the folder that --tls names; null where that is empty. Errors (bad_input)
// begin with the option.
Expected<std::shared_ptr<const TlsContext>> load_certificates(const std::string& folder);

}  // namespace grapevine::tcp
