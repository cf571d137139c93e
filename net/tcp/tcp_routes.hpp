// The way of outgoing messages from the router to the connections.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "net/queued_bytes.hpp"
#include "net/rank_router.hpp"
#include "net/tcp/tcp_outbox.hpp"

namespace grapevine::tcp {

// The outboxes of the processes that are connected. Thread-safe.
class Routes {
 public:
  // Null: messages for that process are dropped from now on.
  void set(std::int32_t process, std::shared_ptr<Outbox> outbox);
  // Takes the router's outgoing messages to their outboxes, in order, and writes as much as the
  // sockets take at once, within a limit: the event loop writes the rest of a large payload.
  void send(RankRouter& router);
  // The waiting bytes of all outboxes. Takes no lock.
  std::uint64_t queued_bytes() const { return *queued_bytes_; }

 private:
  const std::shared_ptr<QueuedTotal> queued_bytes_ = std::make_shared<QueuedTotal>(0);
  std::mutex mutex_;  // while messages are taken, so that two threads keep their order
  std::map<std::int32_t, std::shared_ptr<Outbox>> outboxes_;  // guarded by mutex_
};

}  // namespace grapevine::tcp
