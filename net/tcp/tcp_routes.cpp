#include "net/tcp/tcp_routes.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"

namespace grapevine::tcp {
void Routes::set(std::int32_t process, std::shared_ptr<Outbox> outbox) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto old = outboxes_.find(process); old != outboxes_.end()) {
    old->second->count_in(nullptr);
    outboxes_.erase(old);
  }
  if (outbox == nullptr) return;
  outbox->count_in(queued_bytes_);
  outboxes_[process] = std::move(outbox);
}

void Routes::send(RankRouter& router) {
  std::vector<std::shared_ptr<Outbox>> changed;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Outgoing& outgoing : router.take_outgoing()) {
      const auto found = outboxes_.find(outgoing.process);
      if (found == outboxes_.end()) continue;
      try {
        found->second->add(frame_of(std::move(outgoing.what)));
      } catch (const std::exception&) {  // no memory: later messages must not overtake it
        found->second->fail(kErrorHere + exception_line(std::current_exception()));
      }
      if (std::find(changed.begin(), changed.end(), found->second) == changed.end())
        changed.push_back(found->second);
    }
  }
  for (const auto& outbox : changed) outbox->pump();
}

}  // namespace grapevine::tcp
