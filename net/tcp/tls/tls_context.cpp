#include "net/tcp/tls/tls_context.hpp"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cerrno>
#include <ctime>
#include <fstream>
#include <utility>

#include "messages/check.hpp"
#include "net/tcp/tls/tls_names.hpp"
#include "net/tcp/tls/tls_stream.hpp"

namespace grapevine::tcp {
namespace {

// Received at once, several records.
constexpr std::size_t kReadBytes = std::size_t{128} << 10;

// The reason of OpenSSL's last error; its queue is empty then.
std::string last_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* const reason = ERR_reason_error_string(code);
  return reason == nullptr ? "OpenSSL gives no reason" : reason;
}

Error refused(const std::string& file, const std::string& why) {
  return bad_input(file + ": " + why +
                   ": the folder needs ca.pem, and cert.pem of that CA with its key.pem, as "
                   "'grapevine node --make-certificates' writes them");
}

Expected<void> check_readable(const std::string& file) {
  errno = 0;
  std::ifstream in(file);
  char first = 0;
  if (in.get(first)) return {};
  return refused(file, errno == 0 ? "is empty, or no file"
                                  : "cannot be read (" + text_of_system_error(errno) + ")");
}

// Another user of this machine with the key could take part in every job.
Expected<void> check_private(const std::string& file) {
  struct stat status {};
  constexpr unsigned kOthers = S_IRWXG | S_IRWXO;
  if (::stat(file.c_str(), &status) != 0 || (status.st_mode & kOthers) == 0) return {};
  return bad_input(
      fmt::format("{}: other users may use this private key (mode {:04o}): chmod 600 {}", file,
                  status.st_mode & 07777U, file));
}

std::string text_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown date";
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

// A certificate that is about to end lets a job start, but no lost process return later.
void warn_before_expiry(X509* certificate, const std::string& file) {
  constexpr int kDaysBefore = 30;
  int days = 0, seconds = 0;
  const ASN1_TIME* const end = X509_get0_notAfter(certificate);
  if (ASN1_TIME_diff(&days, &seconds, nullptr, end) == 1 && days < kDaysBefore)
    spdlog::warn("{}: expires in {} days, on {}: make new certificates, for all machines", file,
                 days, text_of(end));
}

// The own certificate, as the others will check it.
Expected<void> check_certificate(SSL_CTX* context, const std::string& file) {
  X509_STORE_CTX* const check = X509_STORE_CTX_new();
  GRAPEVINE_CHECK(check != nullptr, "OpenSSL has no memory");
  X509_STORE_CTX_init(check, SSL_CTX_get_cert_store(context), SSL_CTX_get0_certificate(context),
                      nullptr);
  const bool valid = X509_verify_cert(check) == 1;
  const int code = X509_STORE_CTX_get_error(check);
  const std::string why = X509_verify_cert_error_string(code);
  X509_STORE_CTX_free(check);
  ERR_clear_error();
  X509* const own = SSL_CTX_get0_certificate(context);
  if (code == X509_V_ERR_CERT_HAS_EXPIRED)
    return bad_input(fmt::format(
        "{}: expired on {}: make new certificates with 'grapevine node --make-certificates', for "
        "all machines",
        file, text_of(X509_get0_notAfter(own))));
  if (!valid) return refused(file, why);
  warn_before_expiry(own, file);
  return {};
}

Expected<void> load_files(SSL_CTX* context, const std::string& folder) {
  const std::string ca = folder + "/ca.pem", certificate = folder + "/cert.pem",
                    key = folder + "/key.pem";
  for (const std::string& file : {ca, certificate, key})
    if (auto readable = check_readable(file); !readable) return readable;
  if (auto is_private = check_private(key); !is_private) return is_private;
  if (SSL_CTX_load_verify_locations(context, ca.c_str(), nullptr) != 1)
    return refused(ca, "is no certificate of a CA (" + last_error() + ")");
  if (SSL_CTX_use_certificate_file(context, certificate.c_str(), SSL_FILETYPE_PEM) != 1)
    return refused(certificate, "is no certificate (" + last_error() + ")");
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
    return refused(key, "is not the key of cert.pem (" + last_error() + ")");
  return check_certificate(context, certificate);
}

// All others would refuse it, each with a line of its own.
Expected<void> check_names(SSL_CTX* context, const std::string& folder) {
  if (!names_of(SSL_CTX_get0_certificate(context)).empty()) return {};
  return bad_input(fmt::format(
      "{}/cert.pem: names no host, and {}/{} says that names are compared: make certificates with "
      "'grapevine node --make-certificates DIR --hosts NAME,NAME', for all machines",
      folder, folder, kCheckHosts));
}

}  // namespace

// A file that cannot be looked at counts as there: the check is not lost with a right.
bool checks_hosts(const std::string& folder) {
  struct stat status {};
  return ::stat((folder + "/" + kCheckHosts).c_str(), &status) == 0 || errno != ENOENT;
}

Expected<std::shared_ptr<const TlsContext>> TlsContext::load(const std::string& folder) {
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  GRAPEVINE_CHECK(context != nullptr, "OpenSSL has no TLS");
  const std::shared_ptr<TlsContext> owner(new TlsContext(context));
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  if (auto loaded = load_files(context, folder); !loaded) return loaded.error();
  owner->checks_hosts_ = checks_hosts(folder);
  if (owner->checks_hosts_)
    if (auto named = check_names(context, folder); !named) return named.error();
  return std::shared_ptr<const TlsContext>(owner);
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

std::unique_ptr<Stream> TlsContext::accepted(FileDescriptor socket) const {
  return make_tls_stream(context_, std::move(socket), TlsSide::accepted, {});
}

std::unique_ptr<Stream> TlsContext::dialled(FileDescriptor socket,
                                            std::vector<std::string> hosts) const {
  if (!checks_hosts_) hosts.clear();
  return make_tls_stream(context_, std::move(socket), TlsSide::dialled, std::move(hosts));
}

Expected<std::shared_ptr<const TlsContext>> load_certificates(const std::string& folder) {
  if (folder.empty()) return std::shared_ptr<const TlsContext>();
  auto loaded = TlsContext::load(folder);
  if (!loaded) return Error{loaded.error().code, "--tls: " + loaded.error().message};
  return loaded;
}

}  // namespace grapevine::tcp
