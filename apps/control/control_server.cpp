#include "apps/control/control_server.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include <spdlog/spdlog.h>

#include "actors/cluster/join/one_time_nonces.hpp"
#include "apps/console/json_text.hpp"
#include "apps/control/control_proof.hpp"
#include "apps/control/status_json.hpp"
#include "apps/monitoring/bounded_server.hpp"
#include "messages/text/log_limits.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine {
namespace {

using httplib::Request;
using httplib::Response;
using nlohmann::ordered_json;

enum HttpStatus { kOk = 200, kBadRequest = 400, kForbidden = 403, kUnavailable = 503 };

void answer(Response& response, int status, const ordered_json& body) {
  response.status = status;
  response.set_content(json_text(body) + "\n", "application/json");
}

void answer_error(Response& response, const Error& error) {
  answer(response, error.code == Errc::bad_input ? kBadRequest : kUnavailable,
         {{"error", error.message}});
}

// Each kind of refusal has a line of its own, at a bounded rate.
class RefusalLog {
 public:
  void add(const std::string& why) {
    if (const auto more = limits_.admit(why))
      spdlog::warn("control: a client is refused: {}{}", why, *more);
  }

 private:
  LogLimits limits_;
};

}  // namespace

struct ControlServer::Impl {
  using Handler = void (Impl::*)(const ordered_json& body, Response& response);

  void get_status(const ordered_json& /*body*/, Response& response) {
    const auto status = hub->status();
    if (!status) return answer_error(response, status.error());
    answer(response, kOk, status_json(*status, facts));
  }
  // Also of a run that has not begun, or whose coordinator is too busy to answer.
  void post_stop(const ordered_json& /*body*/, Response& response) {
    const auto stops = hub->ask({ControlRequest::Kind::stop, 0, {}});
    if (!stops && stops.error().code == Errc::bad_input)
      return answer_error(response, stops.error());
    hub->request_stop();
    answer(response, kOk, {{"text", stops ? *stops : "the run stops as soon as it can"}});
  }
  void post_checkpoint(const ordered_json& /*body*/, Response& response) {
    change({ControlRequest::Kind::checkpoint, 0, {}}, response);
  }
  void post_drain(const ordered_json& body, Response& response) {
    const auto rank = body.find("rank");
    if (rank == body.end() || !rank->is_number_integer() || *rank < 0 || *rank > 0x7fffffff)
      return answer(response, kBadRequest, {{"error", "drain: expected the number of a rank"}});
    change({ControlRequest::Kind::drain, rank->get<Rank>(), {}}, response);
  }
  void post_set(const ordered_json& body, Response& response) {
    const auto settings = body.find("settings");
    ControlRequest request{ControlRequest::Kind::set, 0, {}};
    if (settings != body.end() && settings->is_object())
      for (const auto& [key, value] : settings->items())
        request.settings[key] = value.is_string() ? value.get<std::string>() : json_text(value);
    if (request.settings.empty())
      return answer(response, kBadRequest, {{"error", "set: expected settings and their values"}});
    change(request, response);
  }
  void change(const ControlRequest& request, Response& response) {
    const auto done = hub->ask(request);
    if (!done) return answer_error(response, done.error());
    answer(response, kOk, {{"text", *done}});
  }

  void handle(Handler handler, const Request& request, Response& response) {
    const std::string nonce = request.get_header_value(kNonceHeader);
    if (!secret.empty() && !is_proved(nonce, request)) {
      refusals.add("it does not prove that it knows the job's secret");
      return answer(response, kForbidden,
                    {{"error", "the job's secret is needed: set GRAPEVINE_JOB_TOKEN"}});
    }
    const auto body = request.body.empty()
                          ? ordered_json::object()
                          : ordered_json::parse(request.body, nullptr, /*allow_exceptions=*/false);
    if (body.is_object()) {
      (this->*handler)(body, response);
    } else {
      refusals.add("its request is not JSON");
      answer(response, kBadRequest, {{"error", "the body is not a JSON object"}});
    }
    if (!secret.empty())
      response.set_header(kProofHeader,
                          proof_of_answer(secret, nonce, response.status, response.body));
  }
  static Timestamp now() { return std::chrono::steady_clock::now().time_since_epoch(); }
  bool is_proved(const std::string& nonce, const Request& request) {
    const std::string proof =
        proof_of_request(secret, nonce, request.method, request.path, request.body);
    return equal_secrets(request.get_header_value(kProofHeader), proof) && nonces.use(nonce, now());
  }

  void add_handlers() {
    const auto bound = [this](Handler handler) {
      return [this, handler](const Request& request, Response& response) {
        handle(handler, request, response);
      };
    };
    server.Get("/v1/status", bound(&Impl::get_status));
    server.Post("/v1/stop", bound(&Impl::post_stop));
    server.Post("/v1/checkpoint", bound(&Impl::post_checkpoint));
    server.Post("/v1/drain", bound(&Impl::post_drain));
    server.Post("/v1/set", bound(&Impl::post_set));
    server.Get("/v1/nonce", [this](const Request&, Response& response) {
      answer(response, kOk, {{"nonce", nonces.make(now())}});
    });
    server.set_payload_max_length(BoundedServer::kLongestRequest);
    server.set_error_handler([this](const Request&, Response& response) {
      if (!response.body.empty()) return;  // an answer of this server
      refusals.add("its request is not one of this server");
      answer(response, response.status, {{"error", "not a request of this server"}});
    });
    server.on_cut_off([this](const std::string& why) { refusals.add(why); });
  }

  std::shared_ptr<ControlHub> hub;
  RunDescription facts;
  std::string secret;  // empty: the file's permissions protect it
  std::string path;    // of the socket, empty: a port
  FileDescriptor folder;
  std::uint16_t port = 0;
  OneTimeNonces nonces;
  RefusalLog refusals;
  BoundedServer server;
};

Expected<std::unique_ptr<ControlServer>> ControlServer::on_socket(const std::string& folder,
                                                                  std::shared_ptr<ControlHub> hub,
                                                                  const RunDescription& facts) {
  auto impl = std::make_unique<Impl>();
  impl->hub = std::move(hub);
  impl->facts = facts;
  // The name of a socket has 108 bytes at most: this one is short for every folder.
  impl->folder = FileDescriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  impl->path = "/proc/self/fd/" + std::to_string(impl->folder.get()) + "/" + kControlSocket;
  ::unlink(impl->path.c_str());
  impl->add_handlers();
  impl->server.set_address_family(AF_UNIX);
  // Before it is bound: the socket's file is made with this mode.
  impl->server.set_socket_options([](auto socket) { ::fchmod(socket, S_IRUSR | S_IWUSR); });
  errno = 0;
  constexpr int kAnyPort = 80;  // of no meaning
  if (!impl->server.bind_to_port(impl->path.c_str(), kAnyPort)) {
    impl->path.clear();
    return Error{Errc::io, "cannot listen on '" + folder + "/" + kControlSocket +
                               "': " + std::strerror(errno)};
  }
  impl->server.serve();
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

Expected<std::unique_ptr<ControlServer>> ControlServer::on_port(
    const ListenAddress& address, const std::string& secret, std::shared_ptr<ControlHub> hub,
    const RunDescription& facts, std::shared_ptr<const tcp::TlsContext> tls) {
  const std::string name = "--control " + address.host + ":" + std::to_string(address.port);
  if (secret.empty())
    return bad_input(name +
                     ": a job that is controlled over the network needs a secret: set "
                     "GRAPEVINE_JOB_TOKEN, for the job and for 'grapevine control'");
  auto impl = std::make_unique<Impl>();
  impl->hub = std::move(hub);
  impl->facts = facts;
  impl->secret = secret;
  impl->server.require_tls(std::move(tls));
  impl->add_handlers();
  const auto port = impl->server.listen_at(address);
  if (!port) return bad_input(name + ": cannot listen there: " + port.error().message);
  impl->port = *port;
  impl->server.serve();
  return std::unique_ptr<ControlServer>(new ControlServer(std::move(impl)));
}

ControlServer::ControlServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

// As MetricsEndpoint: a slow client is not waited for.
ControlServer::~ControlServer() {
  if (!impl_->path.empty()) ::unlink(impl_->path.c_str());
  if (impl_->server.stop_serving()) return;
  impl_->server.abandon();
  static_cast<void>(impl_.release());
}

std::uint16_t ControlServer::port() const { return impl_->port; }

}  // namespace grapevine
