// Mailbox: the waiting messages of one local rank of a transport, and their delivery.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "net/transport.hpp"

namespace grapevine {

struct PeerDown {
  Rank peer = 0;
  std::string reason;  // see Inbox::peer_down()
};

// Guarded by a mutex of its transport, which orders the items of several mailboxes.
struct Mailbox {
  using Item = std::variant<Envelope, PeerDown>;

  std::shared_ptr<Inbox> inbox;  // null: not attached; items wait
  std::deque<Item> items;        // not yet delivered, oldest first
  bool delivering = false;       // some thread is emptying `items`
  TransportCounters sent;        // by this rank
};

// Delivers the items of `box`, one item at a time, on this thread and with `mutex` not held;
// returns at once where another thread (or an outer frame of this one) does. An exception of the
// Inbox passes through: its item counts as delivered, the others wait for the next call. REQUIRES:
// `mutex` guards `box` and is not held.
void deliver_pending(std::mutex& mutex, Mailbox& box);

}  // namespace grapevine
