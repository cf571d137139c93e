#include "net/inproc/mailbox.hpp"

#include <utility>

namespace grapevine {
namespace {

bool begin_delivering(std::mutex& mutex, Mailbox& box) {
  const std::lock_guard<std::mutex> lock(mutex);
  return !std::exchange(box.delivering, true);
}

// Takes the oldest item for the attached Inbox; false, and `delivering` ends, where there is no
// item or no Inbox.
bool next_item(std::mutex& mutex, Mailbox& box, std::shared_ptr<Inbox>& inbox,
               Mailbox::Item& item) {
  inbox.reset();  // the last holder's destructor may send: not under the lock
  const std::lock_guard<std::mutex> lock(mutex);
  if (box.items.empty() || box.inbox == nullptr) {
    box.delivering = false;
    return false;
  }
  inbox = box.inbox;
  item = std::move(box.items.front());
  box.items.pop_front();
  return true;
}

void hand_over(Inbox& inbox, Mailbox::Item item) {
  if (auto* envelope = std::get_if<Envelope>(&item)) return inbox.deliver(std::move(*envelope));
  const auto& lost = std::get<PeerDown>(item);
  inbox.peer_down(lost.peer, lost.reason);
}

}  // namespace

void deliver_pending(std::mutex& mutex, Mailbox& box) {
  if (!begin_delivering(mutex, box)) return;
  std::shared_ptr<Inbox> inbox;
  Mailbox::Item item;
  try {
    while (next_item(mutex, box, inbox, item)) hand_over(*inbox, std::move(item));
  } catch (...) {  // else no thread would ever deliver to this rank again
    const std::lock_guard<std::mutex> lock(mutex);
    box.delivering = false;
    throw;
  }
}

}  // namespace grapevine
