// PoolSessions: the callers that have greeted a pool, and the messages that the pool takes of them.
#pragma once
#include <caf/all.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "actors/cluster/node_seal.hpp"
#include "messages/text/log_limit.hpp"

namespace grapevine {

// A session begins with a greeting. Sessions without a message are dropped, oldest first, once many
// callers have greeted since. Not thread-safe.
class PoolSessions {
 public:
  explicit PoolSessions(std::string secret) : secret_(std::move(secret)) {}

  Greeting greet(const Greet& greet);
  // Whether the sender knows the secret, and the message is not a repetition. Others are logged,
  // but those of a session that is over: a node that has left may have sent some.
  template <class Message>
  bool trusts(caf::actor_system& system, const Message& message) {
    const auto session = sessions_.find(message.seal.session);
    if (session == sessions_.end() || !session->second.from.opens(system, message)) {
      if (!is_forgotten(message.seal)) log_distrusted(system);
      return false;
    }
    keep(session->first);
    return true;
  }
  // Whether the session was begun, and is over or was dropped since.
  bool is_forgotten(const Seal& seal) const;
  // Nothing where that session is over.
  template <class Message>
  std::optional<Message> sealed(caf::actor_system& system, std::uint64_t session, Message message) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) return std::nullopt;
    return found->second.to.sealed(system, std::move(message));
  }
  void end(std::uint64_t session) { sessions_.erase(session); }

 private:
  void drop_oldest();
  void keep(std::uint64_t session);
  void log_distrusted(caf::actor_system& system);

  const std::string secret_;
  std::map<std::uint64_t, SealedSession> sessions_;
  std::deque<std::uint64_t> greeted_;  // of callers that have not proven the secret yet
  std::uint64_t last_ = 0;
  LogLimit distrusted_;
};

}  // namespace grapevine
