#include "apps/control/control_client.hpp"

#include <httplib.h>

#include <fcntl.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <utility>

#include "actors/record/files.hpp"
#include "apps/console/files/run_files.hpp"
#include "apps/console/json_text.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/control/control_proof.hpp"
#include "apps/control/control_server.hpp"
#include "apps/control/pool_control.hpp"
#include "apps/node/node_link.hpp"
#include "messages/check.hpp"
#include "net/addresses.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "net/tcp/tls/tls_names.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectTimeout{2};
constexpr std::chrono::seconds kAnswerTimeout{4};  // longer than that of the server

Error ended(const std::string& folder) {
  std::error_code ignored;
  const bool summary = fs::exists(fs::path(folder) / "summary.json", ignored);
  return bad_input("the run in '" + folder + "' does not run" +
                   (summary ? ": it has ended, see its summary.json"
                            : " on this machine: it has ended, or it runs on another one; between "
                              "machines give HOST:PORT of 'train --control'"));
}

// A run has the folder, and listens at no socket in it.
Error not_ready(const std::string& folder) {
  std::error_code ignored;
  const bool took_steps = fs::exists(fs::path(folder) / "metrics.csv", ignored);
  return {Errc::failed,
          "the run in '" + folder + "' does not answer: it is starting" +
              (took_steps ? ", or has ended training and writes its last files" : "") +
              ": ask again in a moment; one on another machine answers at HOST:PORT of "
              "'train --control'"};
}

std::string socket_path(const FileDescriptor& folder) {
  return "/proc/self/fd/" + std::to_string(folder.get()) + "/" + kControlSocket;
}

std::string variable(const std::function<const char*(const char*)>& lookup, const char* name) {
  const char* const value = lookup(name);
  return value == nullptr ? "" : value;
}

// Of HOST:PORT: the port and the secret of a job, which the nodes there may know. The secret that
// is nearest to this call counts: the file of the command line, the token of a job, then what the
// environment of many jobs has.
Expected<PoolJobControl> find_job(const ListenAddress& place,
                                  const std::function<const char*(const char*)>& lookup,
                                  const std::shared_ptr<const tcp::TlsContext>& tls,
                                  const std::string& given_file) {
  const std::string token = variable(lookup, kJobTokenVariable);
  if (!token.empty() && given_file.empty()) return PoolJobControl{0, place.port, token};
  const std::string secret_file =
      !given_file.empty() ? given_file : variable(lookup, environment_name("secret-file").c_str());
  const bool has_secret = !secret_file.empty() || !variable(lookup, kClusterSecretVariable).empty();
  const Error no_secret = bad_input(tcp::join_address(place.host, place.port) + ": set " +
                                    kJobTokenVariable + " to the secret of the job, or " +
                                    kClusterSecretVariable + " to that of the nodes");
  // Nodes without a secret are on loopback.
  if (!has_secret && !is_loopback_host(place.host)) return no_secret;
  const auto secret = has_secret ? read_secret(secret_file) : Expected<std::string>(std::string());
  if (!secret) return secret.error();
  auto job = find_pool_job(place.host, place.port, *secret, tls);
  const bool no_pool = !job && (job.error().code == Errc::timeout ||
                                job.error().message.rfind("cannot reach", 0) == 0);
  if (no_pool && !has_secret)
    return bad_input(no_secret.message + "; asked as nodes without one: " + job.error().message);
  return job;
}

}  // namespace

struct ControlClient::Impl {
  std::unique_ptr<httplib::ClientImpl> http;
  std::string target;
  std::string secret;  // empty: a socket of this machine
  FileDescriptor folder;
  bool tls = false;
  Clock::time_point asked_at;  // the last request
  bool answered = false;       // any of the requests
  bool alerted = false;        // the last connection ended by a TLS alert, from either side
  std::string compared_host;   // of which the certificate has to be; empty: of any
  std::string mismatch;        // why it is of none

  explicit Impl(const std::string& host) : http(std::make_unique<httplib::ClientImpl>(host)) {}
  Impl(const std::string& host, int port)
      : http(std::make_unique<httplib::ClientImpl>(host, port)) {}
  Impl(const std::string& host, int port, const std::string& folder) : tls(true) {
    auto client =
        std::make_unique<httplib::SSLClient>(host, port, folder + "/cert.pem", folder + "/key.pem");
    // The library would always compare host names, which these certificates may not contain; the
    // rest is checked in the handshake.
    client->enable_server_certificate_verification(false);
    SSL_CTX* const context = client->ssl_context();
    GRAPEVINE_CHECK(context != nullptr, "the HTTP library has no TLS");
    if (tcp::checks_hosts(folder) && !is_loopback_host(host)) compared_host = host;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, compared_host.empty() ? nullptr : compare_host);
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    GRAPEVINE_CHECK(
        SSL_CTX_load_verify_locations(context, (folder + "/ca.pem").c_str(), nullptr) == 1,
        "a CA that was read before");
    SSL_CTX_set_ex_data(context, 0, this);
    SSL_CTX_set_info_callback(context, note_alert);
    http = std::move(client);
  }

  // Of OpenSSL, which gives the level and the number of an alert in `code`.
  static void note_alert(const SSL* ssl, int where, int code) {
    const bool fatal = (where & SSL_CB_ALERT) != 0 && code >> 8 == SSL3_AL_FATAL;
    if (fatal) static_cast<Impl*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), 0))->alerted = true;
  }

  static int compare_host(int accepted, X509_STORE_CTX* check) {
    if (accepted != 1 || X509_STORE_CTX_get_error_depth(check) != 0) return accepted;
    const auto* const ssl =
        static_cast<SSL*>(X509_STORE_CTX_get_ex_data(check, SSL_get_ex_data_X509_STORE_CTX_idx()));
    Impl& impl = *static_cast<Impl*>(SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), 0));
    impl.mismatch =
        tcp::why_of_another_host(X509_STORE_CTX_get_current_cert(check), {impl.compared_host});
    if (impl.mismatch.empty()) return 1;
    X509_STORE_CTX_set_error(check, X509_V_ERR_HOSTNAME_MISMATCH);
    return 0;
  }

  void set_limits() {
    http->set_connection_timeout(kConnectTimeout);
    http->set_read_timeout(kAnswerTimeout);
    http->set_write_timeout(kAnswerTimeout);
    http->set_follow_location(false);
  }

  Error no_answer(httplib::Error error) const {
    if (!mismatch.empty())
      return bad_input("the run at " + target + ": its certificate is not accepted: " + mismatch);
    if (alerted || error == httplib::Error::SSLServerVerification ||
        error == httplib::Error::SSLLoadingCerts)
      return bad_input("the run at " + target +
                       ": TLS fails: the certificates are of another CA, or not valid now");
    if (error == httplib::Error::SSLConnection)
      return Error{Errc::timeout, "the run at " + target +
                                      ": TLS fails: process 0 does not answer: it is stopped or "
                                      "overloaded, or has no --tls"};
    // It ends amid a request, or its process was killed: nobody listens any more.
    const bool cut = error == httplib::Error::Read || error == httplib::Error::Write;
    if (cut && Clock::now() - asked_at < kAnswerTimeout / 2 && !listens())
      return secret.empty() ? ended(target) : no_run();
    const bool closed = error == httplib::Error::Read && !secret.empty();
    if (closed && tls)
      return Error{Errc::timeout, "process 0 of the run at " + target +
                                      " does not answer: it is stopped or overloaded, or does not "
                                      "accept the certificate"};
    if (closed)
      return Error{Errc::timeout, "process 0 of the run at " + target +
                                      " does not answer: it is stopped or overloaded, or uses "
                                      "--tls, which must be given here, too"};
    const Socket socket = error == httplib::Error::Connection ? look_at_socket() : Socket::listens;
    if (socket == Socket::listens)
      return {Errc::timeout, "process 0 of the run at " + target +
                                 " does not answer: it is stopped or overloaded"};
    if (socket == Socket::other_user)
      return bad_input("the run in '" + target +
                       "' belongs to another user: only that one may ask and change it");
    // The socket may be that of an earlier run.
    if (secret.empty() && !answered && is_locked(target)) return not_ready(target);
    return secret.empty() ? ended(target) : no_run();
  }
  Error no_run() const {
    return bad_input("no run listens at " + target +
                     ": it is still starting, has ended, or has no --control there");
  }
  bool listens() const {
    const auto answer = http->Get("/v1/nonce");
    return answer || answer.error() != httplib::Error::Connection ||
           look_at_socket() == Socket::listens;
  }
  // The socket in the folder; `absent`: no process listens there.
  enum class Socket { listens, absent, other_user };
  // A stopped process takes no connections: once a few wait, the system refuses others for the
  // moment, which is no end.
  Socket look_at_socket() const {
    if (folder.get() < 0) return Socket::absent;
    const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = socket_path(folder);
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const int connected =
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (connected == 0 || errno == EAGAIN) return Socket::listens;
    return errno == EACCES ? Socket::other_user : Socket::absent;
  }

  Expected<std::string> take_nonce() {
    const auto answer = http->Get("/v1/nonce");
    if (!answer) return no_answer(answer.error());
    const auto body = ordered_json::parse(answer->body, nullptr, false);
    if (!body.is_object() || !body.contains("nonce") || !body["nonce"].is_string())
      return Error{Errc::protocol, target + " is not the --control of a run"};
    return body["nonce"].get<std::string>();
  }

  Expected<ordered_json> request(const std::string& method, const std::string& path,
                                 const std::string& body) {
    httplib::Headers headers;
    std::string nonce;
    alerted = false;
    mismatch.clear();
    asked_at = Clock::now();
    if (!secret.empty()) {
      auto given = take_nonce();
      if (!given) return given.error();
      nonce = *given;
      headers.emplace(kNonceHeader, nonce);
      headers.emplace(kProofHeader, proof_of_request(secret, nonce, method, path, body));
    }
    const auto answer = method == "GET" ? http->Get(path, headers)
                                        : http->Post(path, headers, body, "application/json");
    if (!answer) return no_answer(answer.error());
    answered = true;
    return checked(nonce, *answer);
  }

  Expected<ordered_json> checked(const std::string& nonce, const httplib::Response& answer) const {
    const auto body = ordered_json::parse(answer.body, nullptr, false);
    const Error alien{Errc::protocol, target + " is not the --control of a run of this version"};
    if (!body.is_object()) return alien;
    constexpr int kOk = 200, kForbidden = 403, kUnavailable = 503;
    if (!secret.empty() && answer.status == kForbidden)
      return bad_input("the run at " + target +
                       " has another secret: GRAPEVINE_JOB_TOKEN must be that of the job");
    if (!secret.empty() &&
        !equal_secrets(answer.get_header_value(kProofHeader),
                       proof_of_answer(secret, nonce, answer.status, answer.body)))
      return Error{Errc::protocol, target + " does not prove that it knows the job's secret"};
    if (answer.status == kOk) return body;
    const auto error = body.find("error");
    if (error == body.end() || !error->is_string()) return alien;
    const Errc code = answer.status == kUnavailable ? Errc::failed : Errc::bad_input;
    return Error{code, error->get<std::string>()};
  }
};

Expected<ControlClient> ControlClient::find(const std::string& target,
                                            const std::function<const char*(const char*)>& lookup,
                                            const std::string& tls,
                                            const std::string& secret_file) {
  std::error_code ignored;
  std::unique_ptr<Impl> impl;
  if (fs::is_directory(target, ignored)) {
    const bool listens = fs::is_socket(fs::path(target) / kControlSocket, ignored);
    if (!listens && is_locked(target)) return not_ready(target);
    if (!listens && !is_run(target)) return no_run_there(target);
    if (!listens) return ended(target);
    // A path of any length: see ControlServer.
    FileDescriptor folder(::open(target.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    impl = std::make_unique<Impl>(socket_path(folder));
    impl->folder = std::move(folder);
    impl->http->set_address_family(AF_UNIX);
  } else {
    const auto place = parse_listen_address("control", target, 1);
    if (!place) return bad_input("'" + target + "' is neither the folder of a run nor HOST:PORT");
    const auto certificates = tcp::load_certificates(tls);
    if (!certificates) return certificates.error();
    auto job = find_job(*place, lookup, *certificates, secret_file);
    if (!job) return job.error();
    impl = tls.empty() ? std::make_unique<Impl>(place->host, job->port)
                       : std::make_unique<Impl>(place->host, job->port, tls);
    impl->secret = job->secret;
    if (job->job > 0)
      impl->target = tcp::join_address(place->host, static_cast<std::uint16_t>(job->port)) +
                     " (job " + std::to_string(job->job) + " of the nodes at " + target + ")";
  }
  if (impl->target.empty()) impl->target = target;
  impl->set_limits();
  return ControlClient(std::move(impl));
}

ControlClient::ControlClient(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlClient::ControlClient(ControlClient&& other) noexcept = default;
ControlClient& ControlClient::operator=(ControlClient&& other) noexcept = default;
ControlClient::~ControlClient() = default;

Expected<ordered_json> ControlClient::status() { return impl_->request("GET", "/v1/status", ""); }

Expected<std::string> ControlClient::ask(const std::string& change, const ordered_json& arguments) {
  const auto answer = impl_->request("POST", "/v1/" + change, json_text(arguments));
  if (!answer) return answer.error();
  const auto text = answer->find("text");
  if (text == answer->end() || !text->is_string())
    return Error{Errc::protocol, impl_->target + " answers without a text"};
  return text->get<std::string>();
}

}  // namespace grapevine
