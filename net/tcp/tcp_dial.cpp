#include "net/tcp/tcp_dial.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "net/addresses.hpp"
#include "net/resolve.hpp"

namespace grapevine::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kFirstPause = 10ms;
constexpr Clock::duration kLongestPause = 500ms;
constexpr char kClosed[] =
    "it closed the connection without an answer: do all processes use TLS, or none?";
constexpr char kAcceptedSilently[] = "it accepted the connection and then sent nothing";

Error system_error(int error) { return {Errc::io, text_of_system_error(error)}; }
Error out_of_time(std::string what) { return {Errc::timeout, std::move(what)}; }

Error asked_to_stop() { return {Errc::failed, "asked to stop"}; }

// Until `events` or a hang-up. Errors: timeout, with `late`; failed: cancelled.
Expected<void> wait_for(int descriptor, short events, Clock::time_point deadline,
                        const Cancelled& cancelled, const char* late) {
  for (;;) {
    const Clock::time_point now = Clock::now();
    const auto until =
        cancelled ? std::min<Clock::time_point>(deadline, now + kCancelPoll) : deadline;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
    pollfd waiting{descriptor, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
    if (ready > 0) return {};
    if (cancelled && cancelled()) return asked_to_stop();
    if (Clock::now() >= deadline) return out_of_time(late);
  }
}

Expected<void> connect_to(int descriptor, const SocketAddress& to, Clock::time_point deadline,
                          const Cancelled& cancelled) {
  if (::connect(descriptor, to.get(), to.size) == 0) return {};
  if (errno != EINPROGRESS) return system_error(errno);
  const auto answered =
      wait_for(descriptor, POLLOUT, deadline, cancelled, "no answer to connecting");
  if (!answered) return answered;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return system_error(error);
  return {};
}

struct Connected {
  FileDescriptor socket;
  SocketAddress to;
};

// Of the addresses that the name has, the first that answers. Each gets its part of the time: one
// that does not answer, e.g. over a broken IPv6 route, leaves some for the next.
Expected<Connected> connect_to(const std::string& address, Clock::time_point deadline,
                               const Cancelled& cancelled) {
  const auto parts = split_address(address);
  if (!parts) return parts.error();
  const auto found = resolve(parts->first, parts->second, deadline, cancelled);
  if (!found) return found.error();
  Error last{Errc::io, "the name has no address"};
  auto left = static_cast<int>(found->size());
  for (const SocketAddress& to : *found) {
    const int share = left--;
    FileDescriptor socket(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) {  // a machine may be without IPv6
      last = system_error(errno);
      continue;
    }
    const auto until = share == 1 ? deadline : Clock::now() + (deadline - Clock::now()) / share;
    const Expected<void> connected = connect_to(socket.get(), to, until, cancelled);
    if (connected) return Connected{std::move(socket), to};
    if (connected.error().code == Errc::failed) return connected.error();
    last = connected.error();
  }
  return last;
}

Error error_of(const Moved& moved) {
  return {moved.is_final ? Errc::protocol : Errc::io, moved.error};
}

// The handshake of the stream, which precedes the greeting.
Expected<void> shake_hands(Stream& stream, Clock::time_point deadline, const Cancelled& cancelled) {
  for (;;) {
    bool wants_write = false;
    const Moved moved = stream.handshake(wants_write);
    if (!moved.error.empty()) return error_of(moved);
    if (!moved.blocked) return {};
    const auto ready = wait_for(stream.descriptor(), wants_write ? POLLOUT : POLLIN, deadline,
                                cancelled, kAcceptedSilently);
    if (!ready) return ready;
  }
}

// The names of the machine there, one of which its certificate may need. `host`: another one;
// empty: none known. Loopback is this machine by its own kernel: any certificate of the CA will do.
std::vector<std::string> hosts_of(const std::string& address, const std::string& host) {
  const auto parts = split_address(address);
  if (!parts || is_loopback_host(parts->first)) return {};
  std::vector<std::string> hosts{parts->first};
  if (!host.empty()) hosts.push_back(host);
  return hosts;
}

Expected<std::unique_ptr<Stream>> shaken_stream(FileDescriptor socket, const std::string& address,
                                                Clock::time_point deadline,
                                                const Cancelled& cancelled,
                                                const Credentials* credentials,
                                                const std::string& host = "") {
  std::unique_ptr<Stream> stream =
      credentials == nullptr ? make_plain_stream(std::move(socket))
                             : credentials->dialled(std::move(socket), hosts_of(address, host));
  const Expected<void> shaken = shake_hands(*stream, deadline, cancelled);
  if (!shaken) return shaken.error();
  return stream;
}

// Fills all of `bytes`.
Expected<void> read_all(Stream& stream, std::byte* bytes, std::size_t wanted,
                        Clock::time_point deadline, const Cancelled& cancelled,
                        const char* closed = kClosed) {
  for (std::size_t size = 0; size < wanted;) {
    const iovec in{bytes + size, wanted - size};
    const Moved received = stream.read(&in, 1);
    size += received.bytes;
    if (received.ended) return Error{Errc::io, closed};
    if (!received.error.empty()) return error_of(received);
    if (size == wanted || !received.blocked) continue;
    const auto ready =
        wait_for(stream.descriptor(), POLLIN, deadline, cancelled, kAcceptedSilently);
    if (!ready) return ready;
  }
  return {};
}

// A part of the greeting is shorter than any socket buffer: one write takes all of it.
Expected<void> write_part(Stream& stream, std::vector<std::byte> part) {
  const iovec out{part.data(), part.size()};
  const Moved sent = stream.write(&out, 1);
  if (sent.bytes == part.size()) return {};
  return Error{Errc::io, sent.error.empty() ? "it takes no greeting" : sent.error};
}

Expected<Nonces> exchange_nonces(Stream& stream, Clock::time_point deadline,
                                 const Cancelled& cancelled) {
  const Hello own = make_hello();
  const Expected<void> sent = write_part(stream, encode_hello(own));
  if (!sent) return sent.error();
  std::array<std::byte, kHelloBytes> answer{};
  const auto read = read_all(stream, answer.data(), answer.size(), deadline, cancelled);
  if (!read) return read.error();
  const Expected<Hello> hello = decode_hello(answer.data());
  if (!hello) return hello.error();
  return Nonces{own.nonce, hello->nonce};
}

// The answer to `own`. The listener gives it once its own connect() has begun.
Expected<Proof> exchange_proofs(Stream& stream, const Proof& own, Clock::time_point deadline,
                                const Cancelled& cancelled) {
  const Expected<void> sent = write_part(stream, encode_proof(own));
  if (!sent) return sent.error();
  std::array<std::byte, kProofBytes> answer{};
  const auto read = read_all(stream, answer.data(), answer.size(), deadline, cancelled);
  if (!read) return read.error();
  return decode_proof(answer.data());
}

// Whether a process that refuses so may accept once it has learnt that this one returns.
bool may_pass(Refusal refusal) {
  return refusal == Refusal::too_late || refusal == Refusal::duplicate_process ||
         refusal == Refusal::lower_process;
}

// Of a listener that has proved itself. `joins`: see dial().
Expected<void> check_answer(const Proof& answer, const LinkIdentity& own, std::int32_t process,
                            bool joins) {
  if (answer.refusal == Refusal::other_process)  // of one that has ended, others may have the port
    return Error{
        joins ? Errc::io : Errc::protocol,
        fmt::format("process {} answered there: check the list of addresses", answer.process)};
  if (answer.refusal != Refusal::none)
    return Error{joins && may_pass(answer.refusal) ? Errc::io : Errc::protocol,
                 describe(answer.refusal)};
  if (answer.placement != own.placement)
    return Error{Errc::protocol, describe(Refusal::other_placement)};
  if (answer.process != process)
    return Error{Errc::protocol, "it has accepted a connection to another process"};
  return {};
}

Expected<void> greet(Stream& stream, const LinkIdentity& own, std::int32_t process,
                     Clock::time_point deadline, const Cancelled& cancelled, bool joins) {
  const Expected<Nonces> nonces = exchange_nonces(stream, deadline, cancelled);
  if (!nonces) return nonces.error();
  const Proof proof = proof_of_dialler(own, process, *nonces);
  const Expected<Proof> answer = exchange_proofs(stream, proof, deadline, cancelled);
  if (!answer) return answer.error();
  if (!is_right_listener(*answer, own.token, *nonces, proof))
    return Error{Errc::protocol, describe(Refusal::other_job)};
  return check_answer(*answer, own, process, joins);
}

Expected<std::unique_ptr<Stream>> dial_once(const std::string& address, const LinkIdentity& own,
                                            std::int32_t process, Clock::time_point deadline,
                                            const Cancelled& cancelled, bool joins,
                                            const Credentials* credentials,
                                            const std::string& host) {
  Expected<Connected> connected = connect_to(address, deadline, cancelled);
  if (!connected) return connected.error();
  auto stream =
      shaken_stream(std::move(connected->socket), address, deadline, cancelled, credentials, host);
  if (!stream) return stream;
  const Expected<void> greeted = greet(**stream, own, process, deadline, cancelled, joins);
  if (!greeted) return greeted.error();
  return stream;
}

}  // namespace

std::string join_address(const std::string& host, std::uint16_t port) {
  const bool bare_ipv6 = host.find(':') != std::string::npos;
  return bare_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Expected<std::pair<std::string, std::string>> split_address(const std::string& address) {
  HostAndPort parts = split_port(address);
  if (parts.host.empty() || !parts.port || parts.port->empty())
    return bad_input("\"" + address + "\" is not of the form host:port");
  return std::make_pair(std::move(parts.host), *std::move(parts.port));
}

HostAndPort split_port(const std::string& text) {
  const auto unwrapped = [](std::string host) {
    const bool wrapped = host.size() >= 2 && host.front() == '[' && host.back() == ']';
    return wrapped ? host.substr(1, host.size() - 2) : std::move(host);
  };
  const bool ends_in_brackets = !text.empty() && text.front() == '[' && text.back() == ']';
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || ends_in_brackets) return {unwrapped(text), std::nullopt};
  return {unwrapped(text.substr(0, colon)), text.substr(colon + 1)};
}

std::string address_of_peer(int descriptor) {
  SocketAddress address;
  address.size = sizeof address.bytes;
  auto* const bytes = reinterpret_cast<sockaddr*>(&address.bytes);
  if (::getpeername(descriptor, bytes, &address.size) != 0) return "an unknown address";
  // The port is at the same place in the addresses of both families.
  const auto port = reinterpret_cast<const sockaddr_in*>(bytes)->sin_port;
  // A listener of both families sees IPv4 as a part of IPv6.
  const std::string mapped = "::ffff:", host = numeric_host(address);
  const bool is_ipv4 = host.rfind(mapped, 0) == 0 && host.find('.') != std::string::npos;
  return join_address(is_ipv4 ? host.substr(mapped.size()) : host, ntohs(port));
}

std::string primary_address(bool ipv6) {
  // Reserved for documentation: reached by the default route.
  const std::string own = own_address_towards(ipv6 ? "2001:db8::1" : "192.0.2.1");
  if (!own.empty()) return own;
  return ipv6 ? "::1" : "127.0.0.1";
}

Expected<Probe> probe(const std::string& host, std::uint16_t port, Clock::duration timeout,
                      const Cancelled& cancelled) {
  auto connected = connect_to(join_address(host, port), Clock::now() + timeout, cancelled);
  if (!connected) return connected.error();
  return Probe{numeric_host(connected->to), std::move(connected->socket)};
}

Expected<std::unique_ptr<Stream>> dial_stream(const std::string& address, Clock::duration timeout,
                                              const Cancelled& cancelled,
                                              const Credentials& credentials) {
  const Clock::time_point deadline = Clock::now() + timeout;
  Expected<Connected> connected = connect_to(address, deadline, cancelled);
  if (!connected) return connected.error();
  return prove(std::move(connected->socket), address, deadline - Clock::now(), cancelled,
               credentials);
}

Expected<std::unique_ptr<Stream>> prove(FileDescriptor socket, const std::string& address,
                                        Clock::duration timeout, const Cancelled& cancelled,
                                        const Credentials& credentials) {
  const Clock::time_point deadline = Clock::now() + timeout;
  auto stream = shaken_stream(std::move(socket), address, deadline, cancelled, &credentials);
  if (!stream) return stream;
  std::byte answer{};
  const auto read = read_all(**stream, &answer, 1, deadline, cancelled,
                             "it closed the connection without an answer");
  if (!read) return read.error();
  if (answer != kStreamAccepted) return Error{Errc::protocol, "another version listens there"};
  return stream;
}

Expected<Greeted> await_greeting(FileDescriptor socket, Clock::duration timeout,
                                 const Cancelled& cancelled, std::size_t most) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const auto ready = wait_for(socket.get(), POLLIN, deadline, cancelled, kAcceptedSilently);
  if (!ready) return ready.error();
  std::vector<std::byte> first(most);
  const ssize_t size = ::recv(socket.get(), first.data(), first.size(), MSG_PEEK);
  if (size < 0) return system_error(errno);
  if (size == 0)
    return Error{Errc::io, "it accepted the connection, but ended it before a greeting"};
  first.resize(static_cast<std::size_t>(size));
  return Greeted{make_plain_stream(std::move(socket)), std::move(first)};
}

bool answers_with_tls(FileDescriptor socket, Clock::duration timeout, const Cancelled& cancelled) {
  constexpr unsigned char kAlert = 21, kHandshake = 22, kMajorVersion = 3, kUnknownMessage = 99;
  // A record of an empty message that does not exist. (OpenSSL leaves other bytes unanswered.)
  constexpr unsigned char kRecord[] = {kHandshake, kMajorVersion, 1, 0, 4, kUnknownMessage, 0, 0,
                                       0};
  if (::send(socket.get(), kRecord, sizeof kRecord, MSG_NOSIGNAL) < 0) return false;
  if (!wait_for(socket.get(), POLLIN, Clock::now() + timeout, cancelled, "")) return false;
  std::array<unsigned char, 2> head{};
  const ssize_t size = ::recv(socket.get(), head.data(), head.size(), 0);
  return size == 2 && head[0] == kAlert && head[1] == kMajorVersion;
}

Expected<std::unique_ptr<Stream>> dial(const std::string& address, const LinkIdentity& own,
                                       std::int32_t process, Clock::time_point deadline,
                                       const Cancelled& cancelled, bool joins,
                                       const Credentials* credentials, const std::string& host) {
  std::string why;  // of the last attempt that the deadline did not cut short
  for (Clock::duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    Expected<std::unique_ptr<Stream>> stream =
        dial_once(address, own, process, deadline, cancelled, joins, credentials, host);
    if (stream) return stream;
    const Errc code = stream.error().code;
    if (code == Errc::protocol || code == Errc::bad_input || code == Errc::failed) return stream;
    if (code != Errc::timeout || why.empty()) why = stream.error().message;
    if (Clock::now() >= deadline) return out_of_time(why);
    std::this_thread::sleep_for(std::min(pause, deadline - Clock::now()));
    if (cancelled && cancelled()) return asked_to_stop();
  }
}

}  // namespace grapevine::tcp
