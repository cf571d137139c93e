// The greetings of processes that connect (shm_greeting.hpp).
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/shm/shm_wire.hpp"

namespace grapevine::shm {
namespace {

constexpr Clock::duration kGreetingTimeout = std::chrono::seconds(10);
constexpr Clock::duration kListenPause = std::chrono::seconds(1);
// Connections without an accepted proof.
constexpr std::size_t kMaxUnauthenticated = 256;

Error damaged_greeting() { return {Errc::protocol, "its greeting is damaged"}; }

}  // namespace

void ShmWire::accept_all() {
  for (;;) {
    FileDescriptor socket = accept_from(listener_.get());
    if (socket.get() < 0) {
      // A connection that cannot be accepted would wake this thread again and again.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        poller_.remove(listener_.get());
        listen_again_ = Clock::now() + kListenPause;
      }
      return;
    }
    Greeting greeting;
    greeting.deadline = Clock::now() + kGreetingTimeout;
    greeting.socket = std::move(socket);
    const int descriptor = greeting.socket.get();
    const bool has_room = make_room();
    greetings_.push_back(std::move(greeting));
    if (!has_room)
      refuse(greetings_.back(), "there are too many unauthenticated connections");
    else if (!is_same_user(descriptor))
      refuse(greetings_.back(), "it runs as another user");
    else if (!poller_.add(descriptor))
      refuse(greetings_.back(), kNoDescriptors);
  }
}

// Until start() a ShmHello has no answer, and its sender waits for as long as that takes: the
// oldest such connection gives way, and a process dials again. The greetings of others are limited
// in time.
bool ShmWire::make_room() {
  if (greetings_.size() < kMaxUnauthenticated) return true;
  const auto oldest = std::find_if(greetings_.begin(), greetings_.end(),
                                   [](const Greeting& g) { return g.theirs && !g.own; });
  if (oldest == greetings_.end()) return false;
  refuse(*oldest, "it gave way to a new one: there are too many unauthenticated connections");
  return true;
}

// `greeting` is destroyed once it is over, well or not.
void ShmWire::on_greeting(Greeting& greeting) {
  Packet packet;
  for (;;) {
    // Until start() its ShmHello waits, and it has nothing to send.
    if (greeting.theirs && !greeting.own && links_ != nullptr) {
      const Expected<bool> answered = answer_hello(greeting);
      if (!answered) return refuse(greeting, answered.error().message);
    }
    const Received received = receive_packet(greeting.socket.get(), packet);
    if (received == Received::nothing) return;
    // A process that only looked whether it reaches this one (reaches_by_shm) has said nothing.
    if (received == Received::closed && !greeting.theirs) return forget(greeting);
    if (received == Received::closed) return refuse(greeting, "it closed the connection");
    if (received == Received::no_descriptors) return refuse(greeting, kNoDescriptors);
    const Expected<bool> over = take_packet(greeting, std::move(packet));
    if (!over) return refuse(greeting, over.error().message);
    if (*over) return forget(greeting);
  }
}

// True: the greeting is over.
Expected<bool> ShmWire::take_packet(Greeting& greeting, Packet packet) {
  if (greeting.own) return answer_proof(greeting, std::move(packet));
  if (greeting.theirs) return damaged_greeting();
  const Expected<ShmHello> hello = read_hello(packet);
  if (!hello) return hello.error();
  greeting.theirs = *hello;
  return false;
}

Expected<bool> ShmWire::answer_hello(Greeting& greeting) {
  ShmHello own = make_hello(links_->own());
  own.proof = proof_of_acceptor(links_->own().token, *greeting.theirs, own);
  greeting.own = own;
  greeting.deadline = Clock::now() + kGreetingTimeout;
  if (!send_packet(greeting.socket.get(), &own, sizeof own)) return Error{Errc::io, "it has ended"};
  return true;
}

Expected<bool> ShmWire::answer_proof(Greeting& greeting, Packet packet) {
  ShmProof proof;
  if (!read_as(packet, proof)) return damaged_greeting();
  const bool known =
      is_equal(proof.proof, proof_of_dialer(links_->own().token, *greeting.theirs, *greeting.own));
  Answer answer;
  // It has proved itself to this process: its proof names both.
  const std::int32_t to = links_->own().process;
  answer.refusal = known ? links_->judge(greeting.theirs->process, greeting.theirs->placement, to)
                         : Refusal::other_job;
  if (answer.refusal != Refusal::none) {
    send_packet(greeting.socket.get(), &answer, sizeof answer);
    return Error{Errc::protocol, describe(answer.refusal)};
  }
  Expected<Ends> ends = make_ends();
  if (!ends) return ends.error();
  const std::vector<int> descriptors = ends->descriptors();
  poller_.remove(greeting.socket.get());
  const int socket = greeting.socket.get();
  Expected<LinkParts> parts =
      join_ends(std::move(greeting.socket), *std::move(ends), std::move(packet));
  if (!parts) return parts.error();
  open(*std::move(parts), greeting.theirs->process,
       [&] { return send_packet(socket, &answer, sizeof answer, descriptors); });
  return true;
}

void ShmWire::refuse(Greeting& greeting, const std::string& why) {
  if (!finishing_)
    if (const auto more = dropped_.admit(why))
      spdlog::warn("shm: dropped a connection: {}{}", why, *more);
  forget(greeting);
}

void ShmWire::forget(Greeting& greeting) {
  if (greeting.socket.get() >= 0) poller_.remove(greeting.socket.get());
  greetings_.remove_if([&](const Greeting& g) { return &g == &greeting; });
}

void ShmWire::expire_greetings(Clock::time_point now) {
  for (auto it = greetings_.begin(); it != greetings_.end();) {
    Greeting& greeting = *it++;
    if (now > greeting.deadline && (!greeting.theirs || greeting.own))
      refuse(greeting, "it did not identify itself in time");
  }
}

}  // namespace grapevine::shm
