#include "apps/trace/perfetto/message_flows.hpp"

namespace grapevine {
namespace {

// After the first pass: what the trace has of the message. In the second pass a bit is cleared at
// its record.
constexpr int kSent = 1, kReceived = 2, kWaitedFor = 4, kApplied = 8;
constexpr std::uint64_t kMostSequence = std::uint64_t{1} << 40;  // a flow's id has room for no more

int bit_of(EventKind kind) {
  switch (kind) {
    case EventKind::sent:
      return kSent;
    case EventKind::received:
      return kReceived;
    case EventKind::wait_end:
      return kWaitedFor;
    case EventKind::applied:
      return kApplied;
    default:
      return 0;
  }
}

}  // namespace

MessageName message_of(const TraceRecord& record) {
  return {record.kind == EventKind::sent ? record.rank : record.peer, record.sequence};
}

MessageFlows::MessageFlows(std::int32_t ranks) : blocks_(static_cast<std::size_t>(ranks)) {}

MessageFlows::Bits MessageFlows::find(const TraceRecord& record, bool add) {
  const MessageName message = message_of(record);
  if (message.sender < 0 || static_cast<std::size_t>(message.sender) >= blocks_.size() ||
      message.sequence == 0 || message.sequence >= kMostSequence)
    return {};
  auto& blocks = blocks_[static_cast<std::size_t>(message.sender)];
  const std::uint64_t number = message.sequence / kBlock;
  auto found = blocks.find(number);
  if (found == blocks.end()) {
    if (!add) return {};
    found = blocks.emplace(number, std::make_unique<Block>()).first;
  }
  const std::uint64_t at = message.sequence % kBlock;
  return {&(*found->second)[at / 2], at % 2 == 0 ? 0 : 4};
}

void MessageFlows::learn(const TraceRecord& record) {
  const int bit = bit_of(record.kind);
  if (bit == 0) return;
  Bits bits = find(record, bit == kSent);
  if (bits.byte == nullptr) return;
  const bool in_order = bit == kSent || bits.has(bit == kReceived ? kSent : kReceived);
  if (in_order) bits.set(bit);
}

FlowRole MessageFlows::use(const TraceRecord& record) {
  const int bit = bit_of(record.kind);
  if (bit == 0) return FlowRole::none;
  Bits bits = find(record, false);
  if (bit == kSent) {
    if (!bits.has(kSent) || !bits.has(kReceived)) return FlowRole::none;
    bits.clear(kSent);
    return FlowRole::begin;
  }
  const bool follows = !bits.has(kSent) && (bit == kReceived || !bits.has(kReceived));
  if (!bits.has(bit) || !follows) return FlowRole::none;
  bits.clear(bit);
  if (bit == kReceived) return bits.has(kWaitedFor | kApplied) ? FlowRole::step : FlowRole::end;
  if (bit == kWaitedFor && bits.has(kApplied)) return FlowRole::step;
  bits.clear(kWaitedFor | kApplied);  // what is used once more later gets no second arrow
  return FlowRole::end;
}

}  // namespace grapevine
