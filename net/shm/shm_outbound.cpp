#include "net/shm/shm_outbound.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/shm/shm_socket.hpp"

namespace grapevine::shm {
namespace {

std::uint64_t bytes_of(const EncodedMessage& message) {
  std::uint64_t bytes = message.header.size();
  for (const FrozenTensor& t : message.payload) bytes += t.nbytes();
  return bytes;
}

std::size_t record_bytes(const EncodedMessage& message, const std::vector<TensorPart>& parts) {
  std::size_t bytes = sizeof(RecordHeader) + sizeof(MessageHead) + padded(message.header.size()) +
                      parts.size() * sizeof(TensorPart);
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].where == Where::inlined) bytes += padded(message.payload[i].nbytes());
  return bytes;
}

void write_record(std::byte* to, const EncodedMessage& message,
                  const std::vector<TensorPart>& parts) {
  to += sizeof(RecordHeader);
  const MessageHead head{static_cast<std::uint32_t>(message.header.size()),
                         static_cast<std::uint32_t>(parts.size())};
  std::memcpy(to, &head, sizeof head);
  to += sizeof head;
  std::memcpy(to, message.header.data(), message.header.size());
  to += padded(message.header.size());
  if (!parts.empty()) std::memcpy(to, parts.data(), parts.size() * sizeof(TensorPart));
  to += parts.size() * sizeof(TensorPart);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].where != Where::inlined) continue;
    std::memcpy(to, message.payload[i].raw(), message.payload[i].nbytes());
    to += padded(message.payload[i].nbytes());
  }
}

}  // namespace

Outbound::Outbound(std::shared_ptr<SharedMemory> outbox, int socket, std::shared_ptr<Lender> lender,
                   std::shared_ptr<Arena> arena, std::uint64_t copied_bytes)
    : ring_(std::move(outbox)),
      socket_(socket),
      lender_(std::move(lender)),
      arena_(std::move(arena)),
      copied_bytes_(copied_bytes) {}

Expected<void> Outbound::push(std::variant<EncodedMessage, Departure> what) {
  if (ending_) return {};
  Item item;
  if (const auto* message = std::get_if<EncodedMessage>(&what)) item.bytes = bytes_of(*message);
  std::visit([&](auto& value) { item.what = std::move(value); }, what);
  const std::uint64_t bytes = item.bytes;
  queue_.push_back(std::move(item));
  queued_bytes_.add(bytes);
  return pump();
}

Expected<void> Outbound::say_goodbye() {
  if (ending_) return {};
  Item item;
  item.what = Goodbye{};
  queue_.push_back(std::move(item));
  ending_ = true;
  return pump();
}

Expected<void> Outbound::pump() {
  while (!queue_.empty()) {
    const Expected<bool> sent = send_front();
    if (!sent) return sent.error();
    if (!*sent) return {};
    queued_bytes_.remove(queue_.front().bytes);
    queue_.pop_front();
  }
  return {};
}

// False where there is no room now: the receiver then rings a bell once it has read.
Expected<bool> Outbound::send_front() {
  Item& item = queue_.front();
  const auto attempt = [&]() -> Expected<bool> {
    if (auto* message = std::get_if<EncodedMessage>(&item.what))
      return send_message(item, *message);
    if (const auto* departure = std::get_if<Departure>(&item.what))
      return send_number(RecordKind::departure, static_cast<std::uint32_t>(departure->rank));
    if (const auto* retired = std::get_if<Retired>(&item.what))
      return send_number(RecordKind::retired, retired->segment);
    return send_number(RecordKind::goodbye, 0);
  };
  Expected<bool> sent = attempt();
  if (!sent || *sent) return sent;
  ring_.box().waits.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // `waits` first, then the room
  return attempt();
}

Expected<bool> Outbound::send_number(RecordKind kind, std::uint32_t number) {
  constexpr std::size_t kBytes = sizeof(RecordHeader) + 8;
  const Expected<std::byte*> to = ring_.reserve(kBytes);
  if (!to) return to.error();
  if (*to == nullptr) return false;
  const std::uint64_t value = number;
  std::memcpy(*to + sizeof(RecordHeader), &value, sizeof value);
  ring_.publish(kind, kBytes);
  ring_bell();
  return true;
}

Expected<bool> Outbound::send_message(Item& item, EncodedMessage& message) {
  if (!item.begun) {
    if (!item.planned) {
      const Expected<bool> now = may_copy(message);
      if (!now || !*now) return now;
      const Expected<void> collected = lender_->collect();
      if (!collected) return collected.error();
      plan(item, message);
    }
    const Expected<bool> sent = send_record(item, message);
    if (!sent || !*sent) return sent;
  }
  return send_fragments(item, message);
}

// Whether the copies that the message needs are within the limit.
Expected<bool> Outbound::may_copy(const EncodedMessage& message) {
  std::uint64_t bytes = 0;
  for (const FrozenTensor& t : message.payload)
    if (t.nbytes() > kMostInlined && !arena_->owns(t.read())) bytes += t.nbytes();
  if (bytes == 0) return true;
  const Expected<void> seen = ring_.look();
  if (!seen) return seen.error();
  while (!unread_.empty() && unread_.front().position <= ring_.read()) {
    unread_bytes_ -= unread_.front().bytes;
    unread_.pop_front();
  }
  return unread_bytes_ == 0 || unread_bytes_ + bytes <= copied_bytes_;
}

void Outbound::plan(Item& item, EncodedMessage& message) {
  std::uint64_t inlined = 0;
  for (FrozenTensor& t : message.payload) {
    TensorPart part;
    if (t.nbytes() == 0) {
      part.where = Where::nowhere;
    } else if (t.nbytes() <= kMostInlined && inlined + t.nbytes() <= kMostInlinedAll) {
      part.where = Where::inlined;
      inlined += t.nbytes();
    } else {
      part = plan_block(item, t);
    }
    item.parts.push_back(part);
  }
  item.planned = true;
  retire_segments();
}

TensorPart Outbound::plan_block(Item& item, FrozenTensor& tensor) {
  TensorPart part;
  part.where = Where::fragments;
  FrozenTensor lent;
  const bool in_place = arena_->owns(tensor.read());
  part.exclusive = !in_place || tensor.sole_owner() ? 1 : 0;
  if (in_place) {
    lent = tensor;
  } else {
    at::Tensor copy = arena_->allocate(tensor.sizes(), tensor.dtype());
    if (!copy.defined()) return part;
    std::memcpy(copy.data_ptr(), tensor.raw(), tensor.nbytes());
    lent = FrozenTensor::freeze(std::move(copy));
  }
  const BlockPlace place = Arena::place_of(lent.read());
  if (!pass_segment(place.segment)) return part;
  const std::optional<std::uint32_t> slot = lender_->lend(lent);
  if (!slot) return part;
  part.where = Where::block;
  part.segment = place.segment;
  part.offset = place.offset;
  part.slot = *slot;
  if (!in_place) item.copied += tensor.nbytes();
  tensor = FrozenTensor();
  return part;
}

bool Outbound::pass_segment(std::uint32_t id) {
  if (passed_.count(id) > 0) return true;
  const std::shared_ptr<SharedMemory> memory = arena_->segment(id);
  SegmentPacket packet;
  packet.segment = id;
  packet.bytes = memory->bytes();
  if (!send_packet(socket_, &packet, sizeof packet, {memory->descriptor()})) return false;
  passed_.insert(id);
  return true;
}

// The receiver need not map segments any longer that this process has freed.
void Outbound::retire_segments() {
  for (auto it = passed_.begin(); it != passed_.end();) {
    if (arena_->segment(*it) != nullptr) {
      ++it;
      continue;
    }
    Item item;
    item.what = Retired{*it};
    queue_.push_back(std::move(item));
    it = passed_.erase(it);
  }
}

Expected<bool> Outbound::send_record(Item& item, EncodedMessage& message) {
  const std::size_t bytes = record_bytes(message, item.parts);
  const Expected<std::byte*> to = ring_.reserve(bytes);
  if (!to) return to.error();
  if (*to == nullptr) return false;
  write_record(*to, message, item.parts);
  ring_.publish(RecordKind::message, bytes);
  ring_bell();
  item.begun = true;
  if (item.copied > 0) {
    unread_.push_back({ring_.written(), item.copied});
    unread_bytes_ += item.copied;
  }
  return true;
}

Expected<bool> Outbound::send_fragments(Item& item, const EncodedMessage& message) {
  for (; item.tensor < item.parts.size(); ++item.tensor, item.offset = 0) {
    if (item.parts[item.tensor].where != Where::fragments) continue;
    const FrozenTensor& tensor = message.payload[item.tensor];
    while (item.offset < tensor.nbytes()) {
      const std::uint64_t count = std::min(kFragmentBytes, tensor.nbytes() - item.offset);
      const std::size_t bytes = sizeof(RecordHeader) + 8 + padded(count);
      const Expected<std::byte*> to = ring_.reserve(bytes);
      if (!to) return to.error();
      if (*to == nullptr) return false;
      std::memcpy(*to + sizeof(RecordHeader), &count, sizeof count);
      std::memcpy(*to + sizeof(RecordHeader) + 8,
                  static_cast<const std::byte*>(tensor.raw()) + item.offset, count);
      ring_.publish(RecordKind::fragment, bytes);
      ring_bell();
      item.offset += count;
    }
  }
  return true;
}

void Outbound::ring_bell() {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // the record first, then `asleep`
  std::atomic<std::uint32_t>& asleep = ring_.box().asleep;
  if (asleep.load(std::memory_order_relaxed) == 0 || asleep.exchange(0) == 0) return;
  const std::byte bell{};
  send_packet(socket_, &bell, 1);  // where it is full of bells, the receiver is awake
}

}  // namespace grapevine::shm
