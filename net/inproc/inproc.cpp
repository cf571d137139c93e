#include "net/inproc/inproc.hpp"

#include <fmt/format.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "messages/check.hpp"
#include "messages/codec.hpp"
#include "net/inproc/mailbox.hpp"

namespace grapevine {
namespace {

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
  bool by_reference(Rank, Rank) const override { return true; }

 private:
  bool is_inside(Rank rank) const { return rank >= 0 && rank < world_size(); }
  Mailbox& mailbox(Rank rank);
  const Mailbox& mailbox(Rank rank) const;

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
    return bad_input(fmt::format("cannot attach rank {} to a transport of {} ranks: use 0..{}",
                                 rank, world_size(), world_size() - 1));
  const std::lock_guard<std::mutex> lock(mutex_);
  Mailbox& box = mailbox(rank);
  if (box.inbox != nullptr)
    return bad_input("rank " + std::to_string(rank) +
                     " is attached already: detach it first, or give each process its own rank");
  box.inbox = std::move(inbox);
  return {};
}

void InprocTransport::detach(Rank rank) {
  std::vector<Mailbox*> notified;
  std::shared_ptr<Inbox> leaving;  // destroyed after the lock is released, as are the messages
  std::deque<Mailbox::Item> undelivered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Mailbox& box = mailbox(rank);
    if (box.inbox == nullptr) return;
    leaving.swap(box.inbox);
    undelivered.swap(box.items);
    for (Mailbox& other : mailboxes_) {
      if (other.inbox == nullptr) continue;
      other.items.emplace_back(PeerDown{rank, ""});
      notified.push_back(&other);
    }
  }
  for (Mailbox* other : notified) deliver_pending(mutex_, *other);
}

void InprocTransport::send(Envelope envelope) {
  Mailbox& from = mailbox(envelope.from);
  Mailbox& to = mailbox(envelope.to);
  const std::uint64_t bytes = wire_size(envelope);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (from.inbox == nullptr || to.inbox == nullptr) {
      ++from.sent.messages_dropped;
      return;
    }
    ++from.sent.messages_sent;
    from.sent.bytes_sent += bytes;
    to.items.emplace_back(std::move(envelope));
  }
  deliver_pending(mutex_, to);
}

TransportCounters InprocTransport::counters(Rank rank) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return mailbox(rank).sent;
}

}  // namespace

std::unique_ptr<Transport> make_inproc_transport(std::int32_t world_size) {
  GRAPEVINE_CHECK(world_size >= 1, "a world of ", world_size);
  return std::make_unique<InprocTransport>(world_size);
}

}  // namespace grapevine
