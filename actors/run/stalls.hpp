// Injected stalls of messages: on a link, or at a server.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "actors/run/delay.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// Holds back the messages of one rank in their order; sends nothing. Not thread-safe.
class MessageStalls {
 public:
  MessageStalls() = default;  // holds back nothing
  MessageStalls(Rank rank, const std::vector<Stall>& stalls);

  // A message that has come over its link. Nothing: it arrives now. Otherwise it is kept for
  // release(); a duration above 0 asks the caller to call that after it.
  std::optional<Duration> on_link(Envelope& envelope);
  // The same of a message that has arrived at this server, as from rank kAny.
  std::optional<Duration> at_server(Envelope& envelope);

  static constexpr Rank kAny = -1;
  // The kept messages of a sender, in the order of their arrival; their stall is over.
  std::deque<Envelope> release(Rank from);
  // Drops what this server keeps of a rank that has ended. Returns how many messages.
  std::int64_t forget(Rank from);
  bool holds() const;
  // Those that have arrived at this server and are not delivered.
  const std::deque<Envelope>& undelivered() { return held_[kAny]; }

 private:
  std::optional<Duration> keep(Rank from, Envelope& envelope, Stall::Kind kind);

  std::vector<Stall> stalls_;  // of this rank's messages, still to come
  std::map<Rank, std::deque<Envelope>> held_;
};

}  // namespace grapevine
