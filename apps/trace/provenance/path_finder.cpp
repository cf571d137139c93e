#include "apps/trace/provenance/path_finder.hpp"

#include <algorithm>

#include "apps/trace/provenance/update_finder.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kKeptPulls = 256;  // of a client and a server

bool is_pull(PayloadKind kind) {
  return kind == PayloadKind::grant || kind == PayloadKind::receipt ||
         kind == PayloadKind::parameters;
}

bool takes_part(const TracedOperation& operation, Rank rank) {
  const auto& members = operation.members;
  return members.empty() || std::binary_search(members.begin(), members.end(), rank);
}

MessageHop hop_of(const TraceRecord& sent) {
  MessageHop hop;
  hop.from = sent.rank;
  hop.to = sent.peer;
  hop.sequence = sent.sequence;
  hop.payload = sent.payload;
  hop.operation = sent.operation;
  hop.version = sent.version;
  hop.bytes = sent.bytes;
  hop.sent_ns = sent.time_ns;
  return hop;
}

}  // namespace

PathFinder::PathFinder(Provenance& found, std::int32_t workers) : found_(found) {
  for (std::size_t i = 0; i < found.updates.size(); ++i) {
    const TracedUpdate& update = found.updates[i];
    if (update.path != PathKind::message) continue;
    const MessageHop& hop = update.hops.back();
    if (hop.sequence > 0) wanted_[{hop.from, hop.sequence}].push_back(i);
    if (update.at >= workers) pulls_[{update.at, hop.from}];
  }
}

void PathFinder::add(const TraceRecord& record) {
  if (record.kind == EventKind::resumed) resumed_ns_[record.rank] = record.time_ns;
  if (record.kind == EventKind::sent || record.kind == EventKind::received) {
    follow_pull(record);
    follow_message(record);
  }
  for (std::size_t i = 0; i < found_.operations.size(); ++i)
    if (found_.operations[i].number == record.operation) follow_operation(record, i);
}

void PathFinder::follow_message(const TraceRecord& record) {
  const bool sent = record.kind == EventKind::sent;
  const auto found = wanted_.find({sent ? record.rank : record.peer, record.sequence});
  if (found == wanted_.end()) return;
  for (const std::size_t number : found->second) {
    TracedUpdate& update = found_.updates[number];
    if (!sent) {
      arrive(update.hops.back(), record);
      continue;
    }
    update.hops.back() = hop_of(record);
    add_pull(update);
  }
}

// A message from a server to a client of it.
void PathFinder::follow_pull(const TraceRecord& record) {
  const bool sent = record.kind == EventKind::sent;
  const auto found = pulls_.find(sent ? ServedClient{record.rank, record.peer}
                                      : ServedClient{record.peer, record.rank});
  if (found == pulls_.end()) return;
  std::vector<MessageHop>& pulls = found->second;
  if (sent && is_pull(record.payload)) {
    pulls.push_back(hop_of(record));
    if (pulls.size() > 2 * kKeptPulls)
      pulls.erase(pulls.begin(), pulls.begin() + static_cast<std::ptrdiff_t>(kKeptPulls));
  }
  if (sent) return;
  for (MessageHop& pull : pulls)
    if (pull.sequence == record.sequence) arrive(pull, record);
}

// Before the commit came the message with the version that its gradient was computed at.
void PathFinder::add_pull(TracedUpdate& update) const {
  const auto found = pulls_.find({update.at, update.hops.back().from});
  if (found == pulls_.end()) return;
  const auto pull =
      std::find_if(found->second.rbegin(), found->second.rend(), [&update](const MessageHop& hop) {
        return hop.version == update.gradient.version && hop.received_ns.has_value();
      });
  if (pull != found->second.rend()) update.hops.insert(update.hops.begin(), *pull);
}

void PathFinder::follow_operation(const TraceRecord& record, std::size_t number) {
  TracedOperation& operation = found_.operations[number];
  if (record.kind == EventKind::sent || record.kind == EventKind::received)
    return follow_part(record, operation);
  if (!takes_part(operation, record.rank)) return;
  const ContributionName name{number, record.origin, record.origin_step};
  const bool is_applied = record.kind == EventKind::applied && record.peer < 0;
  if (is_applied || record.kind == EventKind::committed) {
    const auto [entry, is_new] = contributions_.try_emplace(name, update_of(record));
    if (!is_new && is_applied) entry->second.staleness = record.staleness;
  } else if (record.kind == EventKind::contributed && record.staleness >= 0) {
    older_models_[{number, record.rank}] = update_of(record);
  }
}

// A message of the operation to the rank.
void PathFinder::follow_part(const TraceRecord& record, TracedOperation& operation) {
  const bool sent = record.kind == EventKind::sent;
  const Rank from = sent ? record.rank : record.peer, to = sent ? record.peer : record.rank;
  if (to != found_.step.rank || !takes_part(operation, from)) return;
  if (sent) {
    ++operation.messages;
    operation.bytes += record.bytes;
    parts_on_their_way_[{from, record.sequence}] = hop_of(record);
    return;
  }
  const auto part = parts_on_their_way_.find({from, record.sequence});
  if (part == parts_on_their_way_.end()) return;
  operation.last = part->second;
  arrive(*operation.last, record);
}

void PathFinder::arrive(MessageHop& hop, const TraceRecord& received) const {
  hop.received_ns = received.time_ns;
  const auto resumed = resumed_ns_.find(received.rank);
  hop.of_checkpoint = resumed != resumed_ns_.end() && hop.sent_ns && *hop.sent_ns < resumed->second;
}

void PathFinder::finish(const std::map<std::size_t, TracedUpdate>& of_operation) {
  add_older_models();
  for (const auto& [name, update] : contributions_) add_contribution(std::get<0>(name), update);
  for (const auto& [number, update] : of_operation) {
    const auto first = contributions_.lower_bound({number, -1, 0});
    if (first == contributions_.end() || std::get<0>(first->first) != number)
      add_contribution(number, update);
  }
}

// Adds the contributions of ranks that had no new gradient.
void PathFinder::add_older_models() {
  for (const auto& [name, update] : older_models_) {
    const auto& [number, rank] = name;
    const auto own = contributions_.lower_bound({number, rank, -1});
    const bool has_newer = own != contributions_.end() && std::get<0>(own->first) == number &&
                           std::get<1>(own->first) == rank;
    if (!has_newer) contributions_.emplace(ContributionName{number, rank, 0}, update);
  }
}

void PathFinder::add_contribution(std::size_t number, TracedUpdate update) {
  const TracedOperation& operation = found_.operations[number];
  update.at = found_.step.rank;
  update.at_step = found_.step.step;
  update.time_ns = operation.time_ns;
  update.path = PathKind::operation;
  update.hops.clear();
  update.operation = number;
  if (!update.staleness) update.staleness = operation.staleness;
  found_.updates.push_back(std::move(update));
}

}  // namespace grapevine
