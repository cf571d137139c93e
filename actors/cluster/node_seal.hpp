// Seals: how processes of a pool prove, message by message, that they know its secret. No message
// carries the secret, nor anything that could be used a second time.
//
// A caller, a node or `train --cluster`, sends a random number; the pool answers with one of its
// own and the proof that it knows the secret. From the secret and both numbers each side derives
// the keys of the session, one for each direction. Every message that causes an action then carries
// its number and an HMAC-SHA-256 of its contents; a repeated message is ignored.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <typeinfo>
#include <vector>

#include <caf/actor_system.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/meta/type_name.hpp>

#include "actors/cluster/dial.hpp"
#include "messages/check.hpp"
#include "messages/expected.hpp"
#include "net/token.hpp"

namespace grapevine {

// A program in the place of a node gets a proof, against which secrets can be tried offline, at any
// speed: a shorter secret of random characters is too easy to find.
inline constexpr std::size_t kShortestGoodSecret = 16;

struct Seal {
  std::uint64_t session = 0;
  std::uint64_t number = 0;  // from 1, in this direction of the session
  std::string mac;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Seal& s) {
  return f(caf::meta::type_name("grapevine::Seal"), s.session, s.number, s.mac);
}

// The first message of a caller, and the answer of the pool.
struct Greet {
  std::string nonce;  // random
};
struct Greeting {
  bool refused = false;
  Error error;  // where refused
  std::uint64_t session = 0;
  std::string nonce;  // random
  std::string proof;  // that the pool knows the secret
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Greet& m) {
  return f(caf::meta::type_name("grapevine::Greet"), m.nonce);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Greeting& m) {
  return f(caf::meta::type_name("grapevine::Greeting"), m.refused, m.error, m.session, m.nonce,
           m.proof);
}

// The contents of a message, without the HMAC of its seal.
template <class Message>
std::string sealed_content(caf::actor_system& system, Message message) {
  message.seal.mac.clear();
  std::vector<char> bytes;
  caf::binary_serializer sink{system, bytes};
  GRAPEVINE_CHECK(!sink(message), "a message that cannot be written");
  return std::string(bytes.begin(), bytes.end());
}

// Signs the messages of one side of a session. Not thread-safe.
class Sealer {
 public:
  Sealer() = default;  // of no session: its seals are never accepted
  Sealer(std::uint64_t session, std::string key) : session_(session), key_(std::move(key)) {}

  template <class Message>
  Message sealed(caf::actor_system& system, Message message) {
    message.seal = {session_, ++number_, ""};
    message.seal.mac = mac_of(key_, {typeid(Message).name(), sealed_content(system, message)});
    return message;
  }

 private:
  std::uint64_t session_ = 0;
  std::uint64_t number_ = 0;
  std::string key_;
};

// Verifies the messages of the other side. Not thread-safe.
class SealReader {
 public:
  SealReader() = default;  // accepts no message
  SealReader(std::uint64_t session, std::string key) : session_(session), key_(std::move(key)) {}

  // Whether `message` is from the other side and not a repetition.
  template <class Message>
  bool opens(caf::actor_system& system, const Message& message) {
    if (key_.empty() || message.seal.session != session_) return false;
    const std::string mac = mac_of(key_, {typeid(Message).name(), sealed_content(system, message)});
    return equal_secrets(mac, message.seal.mac) && is_new(message.seal.number);
  }

 private:
  // Messages of several actors may overtake each other, by a few.
  bool is_new(std::uint64_t number);

  std::uint64_t session_ = 0;
  std::string key_;
  std::uint64_t newest_ = 0;
  std::set<std::uint64_t> seen_;  // of the last numbers
};

// Both directions of one side.
struct SealedSession {
  Sealer to;
  SealReader from;
};

// The pool's side: answers `greet` and begins the session.
Greeting answer_greeting(const std::string& secret, const Greet& greet, std::uint64_t session);
SealedSession pool_session(const std::string& secret, const Greet& greet, const Greeting& greeting);
// The caller's. Errors (bad_input): the pool does not know the secret, or it refuses, with its
// reason.
Expected<SealedSession> caller_session(const std::string& secret, const Greet& greet,
                                       const Greeting& greeting);

// Begins a session with `pool`. Errors: as ask_actor() and caller_session().
template <class Pool>
Expected<SealedSession> greet_pool(caf::actor_system& system, const Pool& pool,
                                   const std::string& secret, Duration timeout,
                                   const Cancelled& cancelled) {
  const Greet greet{random_hex(kNonceBytes)};
  auto greeting = ask_actor<Greeting>(system, pool, timeout, greet, cancelled);
  if (!greeting) return greeting.error();
  return caller_session(secret, greet, *greeting);
}

}  // namespace grapevine
