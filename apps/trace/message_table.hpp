// MessageTable: joins the records of a message's sending, receipt and use.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "messages/trace/trace_record.hpp"

namespace grapevine {

// A message of which the trace has the sending.
struct TracedMessage {
  std::uint64_t sequence = 0;
  std::int64_t sent_ns = 0;
  std::int64_t received_ns = -1;  // -1: not yet
  PayloadKind payload = PayloadKind::none;
  bool of_checkpoint = false;  // it arrived in the resumed run: the time between is no latency

  // REQUIRES: it was received.
  std::int64_t latency_ns() const { return received_ns - sent_ns; }
};

// Takes `sent`, `received` and `resumed` records in the order of the trace. Links deliver in the
// order of sending, so that a receipt ends the waiting for all messages of its link before it.
class MessageTable {
 public:
  // `kept`: messages of each link that stay known after their receipt.
  explicit MessageTable(std::size_t kept) : kept_(kept) {}

  void sent(const TraceRecord& record);
  void resumed(const TraceRecord& record) { resumed_ns_[record.rank] = record.time_ns; }
  // Nothing: the trace lacks the sending.
  std::optional<TracedMessage> received(const TraceRecord& record);
  // The message that an `applied` record names. Nothing: it names none, or an older one than is
  // kept.
  std::optional<TracedMessage> applied(const TraceRecord& record) const;

 private:
  // By increasing sequence; the first `begin` are forgotten.
  struct Link {
    std::vector<TracedMessage> messages;
    std::size_t begin = 0;
  };
  static std::uint64_t key(Rank from, Rank to);
  static std::size_t find(const Link& link, std::uint64_t sequence);
  static void forget(Link& link, std::size_t most);

  const std::size_t kept_;
  std::unordered_map<std::uint64_t, Link> links_;
  std::unordered_map<Rank, std::int64_t> resumed_ns_;  // the last time
};

}  // namespace grapevine
