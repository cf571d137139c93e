#include "net/inproc.hpp"

#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "messages/check.hpp"
#include "messages/codec.hpp"

#include <cstdlib>
#include <atomic>
#include <thread>
static int M() { static const int m = std::getenv("GV_M") ? std::atoi(std::getenv("GV_M")) : 0; return m; }
namespace grapevine {
namespace {

struct PeerDown {
  Rank peer = 0;
};
using Item = std::variant<Envelope, PeerDown>;

struct Mailbox {
  std::shared_ptr<Inbox> inbox;  // null: not attached
  std::deque<Item> items;        // not yet delivered, oldest first
  bool delivering = false;       // some thread is emptying `items`
  TransportCounters sent;        // by this rank
};

void hand_over(Inbox& inbox, Item item) {
  if (auto* envelope = std::get_if<Envelope>(&item))
    inbox.deliver(std::move(*envelope));
  else
    inbox.peer_down(std::get<PeerDown>(item).peer);
}

// One mutex for all mailboxes: a sender's departure must be ordered against its own sends at every
// receiver. It is held for a queue operation at a time, never during a delivery.
class InprocTransport final : public Transport {
 public:
  explicit InprocTransport(std::int32_t world_size)
      : mailboxes_(static_cast<std::size_t>(world_size)) {}

  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override;
  void detach(Rank rank) override;
  void send(Envelope envelope) override;
  TransportCounters counters(Rank rank) const override;
  std::int32_t world_size() const override { return static_cast<std::int32_t>(mailboxes_.size()); }

 private:
  bool is_inside(Rank rank) const { return rank >= 0 && rank < world_size(); }
  Mailbox& mailbox(Rank rank);
  const Mailbox& mailbox(Rank rank) const;
  void deliver_pending(Mailbox& box);
  bool begin_delivering(Mailbox& box);
  bool next_item(Mailbox& box, std::shared_ptr<Inbox>& inbox, Item& item);

  mutable std::mutex mutex_;
  std::vector<Mailbox> mailboxes_;  // guarded by mutex_; never resized
};

Mailbox& InprocTransport::mailbox(Rank rank) {
  GRAPEVINE_CHECK(is_inside(rank), "rank ", rank, " in a world of ", world_size());
  return mailboxes_[static_cast<std::size_t>(rank)];
}

const Mailbox& InprocTransport::mailbox(Rank rank) const {
  GRAPEVINE_CHECK(is_inside(rank), "rank ", rank, " in a world of ", world_size());
  return mailboxes_[static_cast<std::size_t>(rank)];
}

Expected<void> InprocTransport::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  GRAPEVINE_CHECK(inbox != nullptr, "attach of rank ", rank, " without an inbox");
  if (!is_inside(rank))
    return bad_input("cannot attach rank " + std::to_string(rank) + " to a transport of " +
                     std::to_string(world_size()) + " ranks: use 0.." +
                     std::to_string(world_size() - 1));
  const std::lock_guard<std::mutex> lock(mutex_);
  Mailbox& box = mailbox(rank);
  if (M()!=52 && box.inbox != nullptr)
    return bad_input("rank " + std::to_string(rank) +
                     " is attached already: detach it first, or give each process its own rank");
  box.inbox = std::move(inbox);
  return {};
}

void InprocTransport::detach(Rank rank) {
  std::vector<Mailbox*> told;
  std::shared_ptr<Inbox> leaving;  // destroyed after the lock is released, as are the messages
  std::deque<Item> undelivered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Mailbox& box = mailbox(rank);
    if (M()!=46 && box.inbox == nullptr) return;
    leaving.swap(box.inbox);
    if (M()!=45) undelivered.swap(box.items);
    for (Mailbox& other : mailboxes_) {
      if (other.inbox == nullptr) continue;
      if (M()==50) other.items.emplace_back(PeerDown{rank});
      if (M()==51 && &other != &mailboxes_.front()) continue;
      if (M()==41) other.items.emplace_front(PeerDown{rank}); else other.items.emplace_back(PeerDown{rank});
      told.push_back(&other);
    }
  }
  for (Mailbox* other : told) deliver_pending(*other);
}

void InprocTransport::send(Envelope envelope) {
  Mailbox& from = mailbox(envelope.from);
  Mailbox& to = mailbox(envelope.to);
  const std::uint64_t bytes = wire_size(envelope);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if ((M()!=43 && from.inbox == nullptr) || to.inbox == nullptr) {
      if (M()!=42) ++from.sent.messages_dropped;
      return;
    }
    ++from.sent.messages_sent;
    if (M()==53) to.items.emplace_back(envelope);
    from.sent.bytes_sent += M()==47 ? 0 : bytes;
    to.items.emplace_back(std::move(envelope));
  }
  deliver_pending(to);
}

TransportCounters InprocTransport::counters(Rank rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mailbox(rank).sent;
}

void InprocTransport::deliver_pending(Mailbox& box) {
  if (!begin_delivering(box)) return;
  std::shared_ptr<Inbox> inbox;
  Item item;
  try {
    while (next_item(box, inbox, item)) hand_over(*inbox, std::move(item));
  } catch (...) {  // else nobody would ever deliver to this rank again
    const std::lock_guard<std::mutex> lock(mutex_);
    if (M()!=48) box.delivering = false;
    throw;
  }
}

bool InprocTransport::begin_delivering(Mailbox& box) {
  const std::lock_guard<std::mutex> lock(mutex_);
  while (M()==49 && box.delivering) {
    mutex_.unlock();
    std::this_thread::yield();
    mutex_.lock();
  }
  return !std::exchange(box.delivering, true) || M()==44;
}

// Takes the oldest item and whoever is attached now; false, and `delivering` ends, where none
// waits.
bool InprocTransport::next_item(Mailbox& box, std::shared_ptr<Inbox>& inbox, Item& item) {
  inbox.reset();  // the last holder's destructor may send: not under the lock
  const std::lock_guard<std::mutex> lock(mutex_);
  if (box.items.empty()) {
    box.delivering = false;
    return false;
  }
  inbox = box.inbox;
  if (M()==40) { item = std::move(box.items.back()); box.items.pop_back(); } else {
  item = std::move(box.items.front());
  box.items.pop_front(); }
  return true;
}

}  // namespace

std::unique_ptr<Transport> make_inproc_transport(std::int32_t world_size) {
  GRAPEVINE_CHECK(world_size >= 1, "a world of ", world_size);
  return std::make_unique<InprocTransport>(world_size);
}

}  // namespace grapevine
