#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

class DeliveryCheck final : public RunCheck {
 public:
  explicit DeliveryCheck(const CheckedRun& run)
      : RunCheck("delivery", run), died_(static_cast<std::size_t>(run.ranks())) {}

  void on_detached(Timestamp at, Rank rank) override { died_[static_cast<std::size_t>(rank)] = at; }

  void on_returned(Timestamp, Rank rank) override { died_[static_cast<std::size_t>(rank)].reset(); }

  void on_sent(Timestamp at, const Envelope& message, std::uint64_t) override {
    if (is_dead(message.from))
      report(fmt::format("rank {} sent a message at {} s, after its death", message.from,
                         to_seconds(at)));
  }

  void on_delivered(Timestamp at, const Envelope& message) override {
    if (is_dead(message.to))
      report(fmt::format("rank {} received a message of rank {} at {} s, after its death",
                         message.to, message.from, to_seconds(at)));
    if (message.stamp.sequence == 0) return;  // a marker has none
    std::uint64_t& newest = newest_[{message.from, message.to}];
    if (message.stamp.sequence <= newest)
      report(fmt::format("rank {} received message {} of rank {} after message {}", message.to,
                         message.stamp.sequence, message.from, newest));
    newest = message.stamp.sequence;
  }

  void on_record(const TraceRecord& record) override {
    const auto& died = died_[static_cast<std::size_t>(record.rank)];
    if (died && Timestamp(record.time_ns) > *died)
      report(fmt::format("rank {} recorded '{}' at {} s, after its death", record.rank,
                         name_of(record.kind), to_seconds(Timestamp(record.time_ns))));
    if (record.kind == EventKind::received) received(record);
  }

 private:
  // What the peer accepts: a message of an earlier life of its sender has a smaller number.
  void received(const TraceRecord& record) {
    std::uint64_t& newest = accepted_[{record.peer, record.rank}];
    if (record.sequence <= newest)
      report(fmt::format("rank {} accepted message {} of rank {} after message {}", record.rank,
                         record.sequence, record.peer, newest));
    newest = std::max(newest, record.sequence);
  }

  bool is_dead(Rank rank) const { return died_[static_cast<std::size_t>(rank)].has_value(); }

  std::vector<std::optional<Timestamp>> died_;
  std::map<std::pair<Rank, Rank>, std::uint64_t> newest_, accepted_;  // by sender and receiver
};

}  // namespace

std::unique_ptr<RunCheck> make_delivery_check(const CheckedRun& run) {
  return std::make_unique<DeliveryCheck>(run);
}

}  // namespace grapevine
