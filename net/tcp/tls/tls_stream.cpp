#include "net/tcp/tls/tls_stream.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "net/tcp/tls/tls_names.hpp"

namespace grapevine::tcp {
namespace {

// Encrypted bytes that are collected before a system call.
constexpr std::size_t kCollectedBytes = std::size_t{256} << 10;

// RFC 8446, section 6.2.
bool is_about_certificates(int alert) {
  return (alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_CERTIFICATE_UNKNOWN) ||
         alert == SSL_AD_UNKNOWN_CA || alert == SSL_AD_ACCESS_DENIED ||
         alert == SSL_AD_CERTIFICATE_REQUIRED;
}

class TlsStream final : public Stream {
 public:
  TlsStream(SSL_CTX* context, FileDescriptor socket, TlsSide side, std::vector<std::string> hosts);
  ~TlsStream() override { SSL_free(ssl_); }

  Moved handshake(bool& wants_write) override;
  Moved read(const iovec* parts, std::size_t count) override;
  Moved write(const iovec* parts, std::size_t count) override;
  void finish_writing() override;

 private:
  static const BIO_METHOD* socket_method();
  static TlsStream& of(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }
  int receive(BIO* bio, char* data, int size);
  void compare_names();
  static int on_certificate(int accepted, X509_STORE_CTX* check);
  bool read_part(const iovec& part, Moved& moved);
  bool write_part(const iovec& part, Moved& moved);
  void flush(Moved& moved);
  void explain(int result, Moved& moved) const;

  const std::vector<std::string> hosts_;  // of which the certificate names one; empty: any
  std::mutex mutex_;
  // Guarded by mutex_.
  std::string mismatch_;  // why the names in the certificate do not fit
  SSL* const ssl_;
  std::vector<char> out_;  // encrypted, from sent_ on not sent
  std::size_t sent_ = 0;
  bool ended_ = false;  // the other side sends no more
  int error_ = 0;       // of the system
};

TlsStream::TlsStream(SSL_CTX* context, FileDescriptor socket, TlsSide side,
                     std::vector<std::string> hosts)
    : Stream(std::move(socket)), hosts_(std::move(hosts)), ssl_(SSL_new(context)) {
  BIO* const bio = BIO_new(socket_method());
  GRAPEVINE_CHECK(ssl_ != nullptr && bio != nullptr, "OpenSSL has no memory");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_, bio, bio);
  if (side == TlsSide::accepted) {
    SSL_set_accept_state(ssl_);
  } else {
    SSL_set_connect_state(ssl_);
    SSL_set_read_ahead(ssl_, 0);  // see read_part()
  }
  if (!hosts_.empty()) compare_names();
}

// During the handshake, so that the other side gets an alert and logs that it is refused. OpenSSL's
// own comparison (X509_VERIFY_PARAM) wants a name and an address where both are given; here one
// suffices.
void TlsStream::compare_names() {
  SSL_set_app_data(ssl_, this);
  SSL_set_verify(ssl_, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, &on_certificate);
}

int TlsStream::on_certificate(int accepted, X509_STORE_CTX* check) {
  if (accepted != 1 || X509_STORE_CTX_get_error_depth(check) != 0) return accepted;
  auto* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto& stream = *static_cast<TlsStream*>(SSL_get_app_data(ssl));
  stream.mismatch_ = why_of_another_host(X509_STORE_CTX_get_current_cert(check), stream.hosts_);
  if (stream.mismatch_.empty()) return 1;
  X509_STORE_CTX_set_error(check, X509_V_ERR_HOSTNAME_MISMATCH);
  return 0;
}

// OpenSSL's own would raise SIGPIPE at a closed connection. Writing never fails: write() stops
// where enough is collected.
const BIO_METHOD* TlsStream::socket_method() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    GRAPEVINE_CHECK(made != nullptr, "OpenSSL has no memory");
    BIO_meth_set_write(made, [](BIO* bio, const char* data, int size) {
      std::vector<char>& out = of(bio).out_;
      out.insert(out.end(), data, data + size);
      return size;
    });
    BIO_meth_set_read(
        made, [](BIO* bio, char* data, int size) { return of(bio).receive(bio, data, size); });
    BIO_meth_set_ctrl(made, [](BIO*, int command, long, void*) -> long {
      return command == BIO_CTRL_FLUSH ? 1 : 0;
    });
    return made;
  }();
  return method;
}

int TlsStream::receive(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t count = ::recv(descriptor(), data, static_cast<std::size_t>(size), 0);
  if (count > 0) return static_cast<int>(count);
  if (count == 0) {
    ended_ = true;
    return 0;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
    BIO_set_retry_read(bio);
  else
    error_ = errno;
  return -1;
}

Moved TlsStream::handshake(bool& wants_write) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Moved moved;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl_);
  if (result != 1) explain(result, moved);
  Moved flushed;
  flush(flushed);  // an alert, too: it says why
  wants_write = flushed.blocked;
  moved.blocked = moved.blocked || flushed.blocked;
  if (moved.ended && moved.error.empty())
    moved.error = "it closed the connection during the TLS handshake: does it use TLS?";
  return moved;
}

Moved TlsStream::read(const iovec* parts, std::size_t count) {
  Moved moved;
  for (std::size_t i = 0; i < count && read_part(parts[i], moved); ++i) continue;
  return moved;
}

// False where no more can be read now. A dialling side reads an answer before an event loop watches
// the socket: bytes behind the answer stay in the socket, where the loop sees them.
bool TlsStream::read_part(const iovec& part, Moved& moved) {
  for (std::size_t filled = 0; filled < part.iov_len;) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::size_t read = 0;
    ERR_clear_error();
    const int result =
        SSL_read_ex(ssl_, static_cast<char*>(part.iov_base) + filled, part.iov_len - filled, &read);
    filled += read;
    moved.bytes += read;
    if (read > 0) SSL_set_read_ahead(ssl_, 1);
    if (result != 1) {
      explain(result, moved);
      return false;
    }
  }
  return true;
}

Moved TlsStream::write(const iovec* parts, std::size_t count) {
  Moved moved;
  for (std::size_t i = 0; i < count && write_part(parts[i], moved); ++i) continue;
  const std::lock_guard<std::mutex> lock(mutex_);
  flush(moved);
  return moved;
}

// False where no more can be written now.
bool TlsStream::write_part(const iovec& part, Moved& moved) {
  for (std::size_t taken = 0; taken < part.iov_len;) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (out_.size() >= kCollectedBytes) flush(moved);
    if (moved.blocked || !moved.error.empty()) return false;
    std::size_t written = 0;
    ERR_clear_error();
    const int result = SSL_write_ex(ssl_, static_cast<const char*>(part.iov_base) + taken,
                                    part.iov_len - taken, &written);
    taken += written;
    moved.bytes += written;
    if (result != 1) {
      explain(result, moved);
      return false;
    }
  }
  return true;
}

// Sends the collected bytes. REQUIRES: mutex_ is held.
void TlsStream::flush(Moved& moved) {
  while (sent_ < out_.size()) {
    const ssize_t count =
        ::send(descriptor(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count >= 0) {
      sent_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
      moved.blocked = true;
      return;
    } else {
      moved.error = text_of_system_error(errno);
      return;
    }
  }
  out_.clear();
  sent_ = 0;
}

// Why a call of OpenSSL moved nothing. REQUIRES: mutex_ is held.
void TlsStream::explain(int result, Moved& moved) const {
  const int kind = SSL_get_error(ssl_, result);
  const unsigned long code = ERR_peek_error();
  const char* const reason = ERR_reason_error_string(code);
  const long verified = SSL_get_verify_result(ssl_);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
    moved.blocked = true;
  } else if (verified != X509_V_OK) {
    moved.error = "its certificate is not accepted: " +
                  (mismatch_.empty() ? X509_verify_cert_error_string(verified) : mismatch_);
    moved.is_final = true;
  } else if (kind == SSL_ERROR_ZERO_RETURN || ended_) {
    moved.ended = true;
  } else if (error_ != 0) {
    moved.error = text_of_system_error(error_);
  } else if (const int alert = ERR_GET_REASON(code) - SSL_AD_REASON_OFFSET; alert > 0) {
    moved.error =
        std::string(is_about_certificates(alert) ? "it refuses the certificate of this process: "
                                                 : "it ends the connection with a TLS alert: ") +
        (reason == nullptr ? std::to_string(alert) : reason);
    moved.is_final = true;
  } else {
    moved.error = std::string("it does not speak TLS as this process does: ") +
                  (reason == nullptr ? "damaged bytes" : reason);
    moved.is_final = true;
  }
}

void TlsStream::finish_writing() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Moved moved;
    SSL_shutdown(ssl_);
    flush(moved);
  }
  ::shutdown(descriptor(), SHUT_WR);
}

}  // namespace

std::unique_ptr<Stream> make_tls_stream(SSL_CTX* context, FileDescriptor socket, TlsSide side,
                                        std::vector<std::string> hosts) {
  return std::make_unique<TlsStream>(context, std::move(socket), side, std::move(hosts));
}

}  // namespace grapevine::tcp
