#include "net/shm/shm_greeting.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "messages/codec.hpp"
#include "net/shm/shm_ring.hpp"

namespace grapevine::shm {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kFirstPause = 10ms;
constexpr Clock::duration kLongestPause = 500ms;

Error bad_greeting(std::string what) { return {Errc::protocol, std::move(what)}; }

std::array<char, kProofDigits> proof(const char* side, const JobToken& token,
                                     const ShmHello& dialer, const ShmHello& acceptor) {
  const auto end = [](const ShmHello& h) {
    return LinkEnd{h.process, h.placement, {h.nonce.data(), h.nonce.size()}};
  };
  const std::string mac = link_proof(token, "shared memory", side, end(dialer), end(acceptor));
  std::array<char, kProofDigits> digits{};
  std::copy_n(mac.begin(), std::min(mac.size(), digits.size()), digits.begin());
  return digits;
}

// Errors: timeout; failed: cancelled; io: the other end has closed, or no descriptors are left.
Expected<Packet> next_packet(int socket, Clock::time_point deadline, const Cancelled& cancelled) {
  auto packet = wait_for_packet(socket, deadline, cancelled);
  if (packet) return packet;
  if (packet.error().code == Errc::timeout)
    return Error{Errc::timeout, "it accepted the connection and then sent nothing"};
  if (packet.error().code == Errc::peer_down)
    return Error{Errc::io, "it closed the connection without an answer"};
  return packet;
}

bool may_pass(Refusal refusal) {
  return refusal == Refusal::too_late || refusal == Refusal::duplicate_process ||
         refusal == Refusal::lower_process;
}

Expected<void> check_acceptor(const ShmHello& answer, const ShmHello& own,
                              const LinkIdentity& identity, std::int32_t process) {
  if (!is_equal(answer.proof, proof_of_acceptor(identity.token, own, answer)))
    return bad_greeting(describe(Refusal::other_job));
  if (answer.placement != own.placement) return bad_greeting(describe(Refusal::other_placement));
  if (answer.process != process)
    return bad_greeting(
        fmt::format("process {} answered there: check the list of addresses", answer.process));
  return {};
}

Expected<LinkParts> greet(FileDescriptor socket, const LinkIdentity& identity, std::int32_t process,
                          Clock::time_point deadline, const Cancelled& cancelled, bool joins) {
  if (!is_same_user(socket.get())) return bad_greeting("it runs as another user");
  const ShmHello own = make_hello(identity);
  if (!send_packet(socket.get(), &own, sizeof own)) return Error{Errc::io, "it does not read"};
  const auto first = next_packet(socket.get(), deadline, cancelled);
  if (!first) return first.error();
  const Expected<ShmHello> answer = read_hello(*first);
  if (!answer) return answer.error();
  const Expected<void> checked = check_acceptor(*answer, own, identity, process);
  if (!checked) return checked.error();
  Expected<Ends> ends = make_ends();
  if (!ends) return ends.error();
  const ShmProof proof{proof_of_dialer(identity.token, own, *answer)};
  if (!send_packet(socket.get(), &proof, sizeof proof, ends->descriptors()))
    return Error{Errc::io, "it does not read"};
  auto last = next_packet(socket.get(), deadline, cancelled);
  if (!last) return last.error();
  Answer decision;
  if (!read_as(*last, decision)) return bad_greeting("its greeting is damaged");
  if (decision.refusal != Refusal::none)
    return Error{joins && may_pass(decision.refusal) ? Errc::io : Errc::protocol,
                 describe(decision.refusal)};
  return join_ends(std::move(socket), *std::move(ends), *std::move(last));
}

}  // namespace

ShmHello make_hello(const LinkIdentity& own) {
  ShmHello hello;
  hello.codec = kCodecVersion;
  hello.process = own.process;
  hello.placement = own.placement;
  const std::string nonce = random_hex(kNonceBytes);
  std::copy_n(nonce.begin(), hello.nonce.size(), hello.nonce.begin());
  return hello;
}

Expected<ShmHello> read_hello(const Packet& packet) {
  ShmHello hello;
  if (!read_as(packet, hello) || hello.magic != ShmHello::kMagic || !packet.descriptors.empty())
    return bad_greeting("it does not speak this protocol");
  if (hello.version != ShmHello::kVersion || hello.codec != kCodecVersion)
    return bad_greeting(fmt::format("it runs another version (protocol {}, codec {}; here {}, {})",
                                    hello.version, hello.codec, ShmHello::kVersion, kCodecVersion));
  return hello;
}

std::array<char, kProofDigits> proof_of_acceptor(const JobToken& token, const ShmHello& dialer,
                                                 const ShmHello& acceptor) {
  return proof("acceptor", token, dialer, acceptor);
}

std::array<char, kProofDigits> proof_of_dialer(const JobToken& token, const ShmHello& dialer,
                                               const ShmHello& acceptor) {
  return proof("dialer", token, dialer, acceptor);
}

bool is_equal(const std::array<char, kProofDigits>& a, const std::array<char, kProofDigits>& b) {
  return equal_secrets({a.data(), a.size()}, {b.data(), b.size()});
}

Expected<Ends> make_ends() {
  Ends ends;
  auto outbox = SharedMemory::make(sizeof(ShmOutbox));
  if (!outbox) return outbox.error();
  ends.outbox = *std::move(outbox);
  auto pipe = descriptor_pair([](int* both) { return ::pipe2(both, O_CLOEXEC | O_NONBLOCK); });
  if (pipe[0].get() < 0) return Error{Errc::io, std::generic_category().message(errno)};
  ends.watch = std::move(pipe[0]);
  ends.lease = std::move(pipe[1]);
  return ends;
}

Expected<LinkParts> join_ends(FileDescriptor socket, Ends own, Packet packet) {
  if (packet.descriptors.size() != 2) return bad_greeting("its greeting is damaged");
  auto inbox = SharedMemory::open(std::move(packet.descriptors[0]), whole_pages(sizeof(ShmOutbox)));
  if (!inbox) return inbox.error();
  LinkParts parts;
  parts.socket = std::move(socket);
  parts.own = std::move(own);
  parts.inbox = *std::move(inbox);
  parts.watch = std::move(packet.descriptors[1]);
  return parts;
}

Expected<LinkParts> dial(const std::string& name, const LinkIdentity& own, std::int32_t process,
                         Clock::time_point deadline, const Cancelled& cancelled, bool joins) {
  for (Clock::duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    Error why;
    if (auto socket = connect_to(name)) {
      auto parts = greet(*std::move(socket), own, process, deadline, cancelled, joins);
      if (parts) return parts;
      why = parts.error();
    } else {
      why = socket.error();
    }
    if (why.code == Errc::protocol || why.code == Errc::failed) return why;
    if (Clock::now() >= deadline) return Error{Errc::timeout, why.message};
    std::this_thread::sleep_for(std::min<Clock::duration>(pause, deadline - Clock::now()));
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
  }
}

}  // namespace grapevine::shm
