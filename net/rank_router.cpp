#include "net/rank_router.hpp"

#include <fmt/format.h>

#include <utility>

#include "messages/check.hpp"
#include "net/device_memory.hpp"

namespace grapevine {

Expected<void> check_sender(const Placement& placement, std::int32_t process, Rank from, Rank to) {
  if (!placement.lives_in(from, process))
    return Error{Errc::protocol,
                 fmt::format("a message from rank {}, which is not in that process", from)};
  if (!placement.is_local(to))
    return Error{Errc::protocol,
                 fmt::format("a message for rank {}, which is not in this process", to)};
  return {};
}

Expected<void> check_departure(const Placement& placement, std::int32_t process, Rank rank) {
  if (placement.lives_in(rank, process)) return {};
  return Error{Errc::protocol,
               fmt::format("the departure of rank {}, which is not in that process", rank)};
}

Expected<void> RankRouter::attach(Rank rank, std::shared_ptr<Inbox> inbox) {
  return local_.attach(rank, std::move(inbox));
}

void RankRouter::detach(Rank rank) {
  if (!local_.detach(rank)) return;
  for (std::int32_t p = 0; p < placement().processes(); ++p)
    if (p != placement().own_process) push({p, Departure{rank}});
}

void RankRouter::send(Envelope envelope, bool from_device) {
  local_.check_ranks(envelope);
  if (placement().is_local(envelope.to)) return local_.send(std::move(envelope));
  Outgoing leaving = encoded(envelope, from_device);
  if (local_.admit(envelope.from, envelope.to, wire_size(envelope))) push(std::move(leaving));
}

Outgoing RankRouter::encoded(const Envelope& envelope, bool from_device) const {
  EncodedMessage message{encode_header(envelope), payload_of(envelope)};
  const bool any_device = from_device && only_tensor(message.payload) != nullptr;
  for (const FrozenTensor& t : message.payload)
    GRAPEVINE_CHECK(!t.defined() || t.device().is_cpu() || any_device, "send of a tensor on ",
                    t.device());
  return {placement().process_of[static_cast<std::size_t>(envelope.to)], std::move(message)};
}

void RankRouter::push(Outgoing outgoing) {
  const std::lock_guard<std::mutex> lock(mutex_);
  outgoing_.push_back(std::move(outgoing));
  ++outgoing_count_;
}

std::deque<Outgoing> RankRouter::take_outgoing() {
  std::deque<Outgoing> taken;
  const std::lock_guard<std::mutex> lock(mutex_);
  taken.swap(outgoing_);
  outgoing_count_ = 0;
  return taken;
}

}  // namespace grapevine
