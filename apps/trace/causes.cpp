#include "apps/trace/causes.hpp"

#include <algorithm>
#include <utility>

#include "apps/trace/training_clock.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kNodesInAll = 1u << 19;  // of all ranks together
constexpr std::size_t kSentInAll = 1u << 19;
constexpr std::size_t kLeastKeptOfRank = 1u << 10, kMostKeptOfRank = 1u << 16;
// A shorter handler is not worth a span.
constexpr std::int64_t kShortHandlerNs = 1'000'000;
// A server that answers this soon after a commit of another client has waited for that commit.
constexpr std::int64_t kSoonAfterCommitNs = 5'000'000;
// The most handlers that a path follows before its begin.
constexpr std::size_t kHandlersBeyond = 256;

std::size_t kept_of_each(std::size_t total, std::int32_t ranks) {
  const std::size_t each = total / static_cast<std::size_t>(std::max(ranks, 1));
  return std::clamp(each, kLeastKeptOfRank, kMostKeptOfRank);
}

bool may_end_turn(PayloadKind payload) {
  return payload == PayloadKind::commit || payload == PayloadKind::packed_chunk ||
         payload == PayloadKind::leave;
}

}  // namespace

Causes::Causes(const RunLayout& layout)
    : layout_(layout),
      most_nodes_(kept_of_each(kNodesInAll, layout.ranks())),
      most_sent_(kept_of_each(kSentInAll, layout.ranks())),
      ranks_(static_cast<std::size_t>(layout.ranks())) {
  for (Rank rank = layout.workers; rank < layout.ranks(); ++rank)
    of(rank).asked_of = of(rank).committed_of =
        std::vector<NodeId>(static_cast<std::size_t>(layout.workers), -1);
}

// ---- the history ----

const Causes::Node* Causes::find(Rank rank, NodeId id) const {
  const OfRank& of_rank = ranks_[static_cast<std::size_t>(rank)];
  const auto kept = static_cast<NodeId>(of_rank.nodes.size());
  if (id < 0 || id >= of_rank.count || id < of_rank.count - kept) return nullptr;
  return &of_rank.nodes[static_cast<std::size_t>(id) % most_nodes_];
}

Causes::Node* Causes::newest(OfRank& rank) {
  return &rank.nodes[static_cast<std::size_t>(rank.count - 1) % most_nodes_];
}

const Causes::Sent* Causes::find_sent(Rank rank, std::uint64_t sequence) const {
  if (!layout_.is_rank(rank) || sequence == 0) return nullptr;
  const OfRank& sender = ranks_[static_cast<std::size_t>(rank)];
  if (sender.sent.empty()) return nullptr;
  const Sent& sent = sender.sent[sequence % sender.sent.size()];
  return sent.sequence == sequence ? &sent : nullptr;
}

void Causes::push(OfRank& rank, const Node& node) {
  if (rank.nodes.size() < most_nodes_)
    rank.nodes.push_back(node);
  else
    rank.nodes[static_cast<std::size_t>(rank.count) % most_nodes_] = node;
  ++rank.count;
}

void Causes::keep(OfRank& rank, const Sent& sent) {
  if (rank.sent_count >= rank.sent.size() && rank.sent.size() < most_sent_) {
    const std::size_t size =
        rank.sent.empty() ? kLeastKeptOfRank : std::min(2 * rank.sent.size(), most_sent_);
    for (const Sent& old : std::exchange(rank.sent, std::vector<Sent>(size)))
      if (old.sequence != 0) rank.sent[old.sequence % size] = old;
  }
  rank.sent[sent.sequence % rank.sent.size()] = sent;
  ++rank.sent_count;
}

void Causes::add(const TraceRecord& record) {
  completed_.clear();
  OfRank& rank = of(record.rank);
  if (rank.has_pending && record.kind != EventKind::data_wait) complete_gradient(rank, record.rank);
  if (rank.count == 0 || begins_anew(record)) {
    Node start;
    start.time_ns = rank.first_ns = record.time_ns;
    rank.asked_ns = -1;
    rank.lost = -1;
    push(rank, start);
  }
  if (record.kind == EventKind::asked) {
    rank.asked_ns = record.time_ns;
    rank.asked_by = rank.count - 1;
  } else if (record.kind == EventKind::data_wait) {
    on_data_wait(rank, record);
  } else if (record.kind == EventKind::produced) {
    on_produced(rank, record);
  } else if (record.kind == EventKind::received) {
    on_received(rank, record);
  } else if (record.kind == EventKind::sent) {
    on_sent(rank, record);
  } else if (record.kind == EventKind::view && record.peer != record.rank) {
    rank.lost = record.peer;
  } else if (record.kind == EventKind::step_done && layout_.grace_ns > 0) {
    rank.lost = -1;  // the next wait without a message may be for a timer
  }
  // Checkpoints and changes of the membership come between the handlers.
  if (record.kind != EventKind::cut && record.kind != EventKind::view)
    rank.last_ns = record.time_ns;
}

// ---- gradients ----

// Its record stands directly before or behind that of the gradient.
void Causes::on_data_wait(OfRank& rank, const TraceRecord& record) {
  Node& last = *newest(rank);
  if (rank.has_pending && last.operation == record.step) {
    last.data_ns = record.duration_ns;
    return;
  }
  rank.early_data_ns = record.duration_ns;
  rank.early_data_step = record.step;
}

void Causes::on_produced(OfRank& rank, const TraceRecord& record) {
  Node node;
  node.kind = Node::Kind::gradient;
  node.time_ns = record.time_ns;
  node.operation = record.step;
  node.first = !std::exchange(rank.has_produced, true);
  if (rank.early_data_step == record.step) node.data_ns = rank.early_data_ns;
  rank.early_data_step = -1;
  end_handler(rank, record.rank);
  if (rank.asked_ns >= 0) {
    node.begin_ns = std::min(rank.asked_ns, record.time_ns);
    node.cause = rank.asked_by;
  } else {  // the request is not in the trace
    node.begin_ns = record.time_ns - std::max<std::int64_t>(record.duration_ns + node.data_ns, 0);
  }
  rank.asked_ns = -1;
  push(rank, node);
  rank.has_pending = true;
}

void Causes::complete_gradient(OfRank& rank, Rank number) {
  rank.has_pending = false;
  gradient_spans(number, *newest(rank), completed_);
  if (completed_.size() > 1) return;
  Span data = completed_.front();  // none: of length 0
  data.kind = SpanKind::data;
  data.end_ns = data.begin_ns;
  completed_.push_back(data);
}

// From the last to the first, as in a path.
void Causes::gradient_spans(Rank rank, const Node& node, std::vector<Span>& out) const {
  Span span;
  span.rank = rank;
  span.step = node.operation;
  span.first = node.first;
  const std::int64_t data = std::clamp<std::int64_t>(node.data_ns, 0, node.time_ns - node.begin_ns);
  span.kind = SpanKind::compute;
  span.begin_ns = node.begin_ns + data;
  span.end_ns = node.time_ns;
  out.push_back(span);
  if (data == 0) return;
  span.kind = SpanKind::data;
  span.end_ns = span.begin_ns;
  span.begin_ns = node.begin_ns;
  out.push_back(span);
}

// ---- messages ----

void Causes::on_sent(OfRank& rank, const TraceRecord& record) {
  if (record.sequence == 0) return;
  Sent sent;
  sent.sequence = record.sequence;
  sent.time_ns = record.time_ns;
  sent.cause = rank.count - 1;
  sent.operation = record.operation;
  sent.index = record.index;
  sent.payload = record.payload;
  if (layout_.is_server(record.rank)) {
    sent.cause = cause_of_answer(rank, record);
    sent.request = request_of_answer(rank, record);
  }
  keep(rank, sent);
  const Node* cause = find(record.rank, sent.cause);
  if (cause == nullptr) return;
  Span span = handling(record.rank, cause->time_ns, record.time_ns);
  span.payload = record.payload;
  completed_.push_back(span);
}

// Normally the newest message: a server answers in its handler. Where it has kept the answer back,
// messages have arrived since then that cannot be the reason for this one.
Causes::NodeId Causes::cause_of_answer(const OfRank& rank, const TraceRecord& answer) const {
  const NodeId newest = rank.count - 1;
  const Node* last = find(answer.rank, newest);
  if (last == nullptr || last->kind != Node::Kind::message || last->peer == answer.peer ||
      answer.peer < 0 || answer.peer >= layout_.workers)
    return newest;
  const auto client = static_cast<std::size_t>(answer.peer);
  const bool is_request = last->payload == PayloadKind::ask;
  if (answer.payload == PayloadKind::grant && is_request) {
    const NodeId cause = std::max(rank.asked_of[client], rank.released);
    return cause < 0 ? newest : cause;
  }
  if (answer.payload == PayloadKind::receipt &&
      (is_request || answer.time_ns - last->time_ns > kSoonAfterCommitNs))
    return rank.committed_of[client] < 0 ? newest : rank.committed_of[client];
  return newest;
}

Causes::NodeId Causes::request_of_answer(const OfRank& rank, const TraceRecord& answer) const {
  if (answer.peer < 0 || answer.peer >= layout_.workers) return -1;
  const auto client = static_cast<std::size_t>(answer.peer);
  return answer.payload == PayloadKind::grant     ? rank.asked_of[client]
         : answer.payload == PayloadKind::receipt ? rank.committed_of[client]
                                                  : -1;
}

void Causes::on_received(OfRank& rank, const TraceRecord& record) {
  Node node;
  node.kind = Node::Kind::message;
  node.time_ns = node.begin_ns = record.time_ns;
  node.peer = record.peer;
  node.payload = record.payload;
  node.operation = record.operation;
  node.index = record.index;
  node.sequence = record.sequence;
  end_handler(rank, record.rank);
  if (const Sent* sent = find_sent(record.peer, record.sequence)) {
    node.begin_ns = std::min(sent->time_ns, record.time_ns);
    node.cause = sent->cause;
    node.request = sent->request;
    if (rank.busy_end_ns > node.begin_ns) {
      node.busy_begin_ns = std::max(node.begin_ns, rank.busy_begin_ns);
      node.busy_end_ns = rank.busy_end_ns;
    }
  }
  push(rank, node);
  note_request(rank, record);
  const std::size_t before = completed_.size();
  if (node.cause >= 0) message_spans(record.rank, node, completed_);
  for (std::size_t i = completed_.size(); i-- > before;)
    if (completed_[i].kind != SpanKind::link)
      completed_.erase(completed_.begin() + static_cast<std::ptrdiff_t>(i));
}

// The messages that arrived during a long handler are handled one after the other behind it.
void Causes::end_handler(OfRank& rank, Rank number) {
  const std::int64_t handler_ns = newest(rank)->time_ns;
  completed_.push_back(handling(number, handler_ns, std::max(handler_ns, rank.last_ns)));
  if (rank.last_ns - handler_ns < kShortHandlerNs) return;
  if (handler_ns - rank.busy_end_ns > kShortHandlerNs) rank.busy_begin_ns = handler_ns;
  rank.busy_end_ns = rank.last_ns;
}

void Causes::note_request(OfRank& rank, const TraceRecord& record) {
  const NodeId id = rank.count - 1;
  const bool is_client = record.peer >= 0 && record.peer < layout_.workers;
  if (!layout_.is_server(record.rank) || !is_client) return;
  if (record.payload == PayloadKind::ask) rank.asked_of[static_cast<std::size_t>(record.peer)] = id;
  if (!may_end_turn(record.payload)) return;
  rank.released = rank.committed_of[static_cast<std::size_t>(record.peer)] = id;
}

// From the last to the first. A receiver that handled something else could not take the message.
void Causes::message_spans(Rank rank, const Node& node, std::vector<Span>& out) const {
  Span on_way;
  on_way.kind = SpanKind::link;
  on_way.rank = node.peer;
  on_way.peer = rank;
  on_way.payload = node.payload;
  on_way.operation = node.operation;
  on_way.index = node.index;
  on_way.begin_ns = node.begin_ns;
  on_way.end_ns = node.time_ns;
  const std::int64_t started_ns =
      std::min(ranks_[static_cast<std::size_t>(rank)].first_ns, node.time_ns);
  if (started_ns > node.begin_ns) {
    Span start;
    start.rank = rank;
    start.begin_ns = node.begin_ns;
    start.end_ns = on_way.begin_ns = started_ns;
    out.push_back(on_way);
    out.push_back(start);
    return;
  }
  if (node.busy_end_ns > node.busy_begin_ns) {
    out.push_back(on_way);
    out.back().begin_ns = node.busy_end_ns;
    out.push_back(handling(rank, node.busy_begin_ns, node.busy_end_ns));
    on_way.end_ns = node.busy_begin_ns;
  }
  out.push_back(on_way);
}

Span Causes::handling(Rank rank, std::int64_t begin_ns, std::int64_t end_ns) const {
  Span span;
  span.rank = rank;
  span.begin_ns = begin_ns;
  span.end_ns = end_ns;
  const bool is_grace = layout_.grace_ns > 0 && 2 * span.length_ns() > layout_.grace_ns;
  span.kind = layout_.is_server(rank) ? SpanKind::server
              : is_grace              ? SpanKind::timer
                                      : SpanKind::handling;
  return span;
}

// ---- paths ----

void Causes::trace_back(const TraceRecord& record, std::int64_t begin_ns, std::vector<Span>& path) {
  path.clear();
  const Rank rank = record.rank;
  const std::int64_t end_ns = record.time_ns;
  const NodeId id = of(rank).count - 1;
  // A change of members ends a wait without a message: the awaited operation was given up.
  if (record.peer < 0 && of(rank).lost >= 0) {
    Span change;
    change.kind = SpanKind::members;
    change.rank = rank;
    change.peer = std::exchange(of(rank).lost, -1);
    change.begin_ns = begin_ns;
    change.end_ns = end_ns;
    change.from_ns = std::min(of(change.peer).last_ns, end_ns);  // until then the peer has worked
    path.push_back(change);
    return;
  }
  const Node* node = find(rank, id);
  const bool is_newest =
      node == nullptr || (node->peer == record.peer && node->sequence == record.sequence);
  const Sent* sent = is_newest ? nullptr : find_sent(record.peer, record.sequence);
  if (sent != nullptr) {  // the receipt is not in the trace
    Node message;
    message.peer = record.peer;
    message.time_ns = end_ns;
    message.begin_ns = std::min(end_ns, sent->time_ns);
    message.payload = sent->payload;
    message.operation = sent->operation;
    message.index = sent->index;
    message_spans(rank, message, path);
    return follow({record.peer, sent->cause, message.begin_ns}, rank, begin_ns, path);
  }
  Span last = handling(rank, node != nullptr ? node->time_ns : begin_ns, end_ns);
  if (record.peer >= 0 || node == nullptr || last.length_ns() <= kShortHandlerNs)
    return follow({rank, id, end_ns}, rank, begin_ns, path);
  last.kind = SpanKind::timer;
  path.push_back(last);
  follow({rank, id, node->time_ns}, rank, begin_ns, path);
}

// To `begin_ns`. While a request was under way, its own path counts, and not that of the clients
// that were served in the meantime.
void Causes::follow(At at, Rank waiter, std::int64_t begin_ns, std::vector<Span>& path) {
  At request;                               // on the path of another reason; id -1: on its own
  PayloadKind payload = PayloadKind::none;  // of the message that the path came from
  std::size_t beyond = 0;
  for (;;) {
    if (request.id >= 0 && at.until_ns <= request.until_ns) at = std::exchange(request, {});
    const Node* node = find(at.rank, at.id);
    const bool is_over = at.until_ns <= begin_ns;
    if (is_over && (at.rank == waiter || node == nullptr || ++beyond > kHandlersBeyond)) return;
    if (node == nullptr) {
      cut_short_ += at.id >= 0 ? 1 : 0;
      break;
    }
    const std::size_t before = path.size();
    if (node->time_ns < at.until_ns) {
      path.push_back(handling(at.rank, node->time_ns, at.until_ns));
      path.back().payload = payload;
      at.until_ns = node->time_ns;
    } else {
      if (node->kind == Node::Kind::message) payload = node->payload;
      if (node->kind == Node::Kind::message && request.id < 0) request = request_of(*node);
      if (!step_back(*node, at, path)) break;
    }
    for (std::size_t i = before; request.id >= 0 && i < path.size(); ++i)
      path[i].from_ns = request.until_ns;
  }
  if (at.until_ns <= begin_ns) return;
  Span start;
  start.rank = at.rank;
  start.begin_ns = begin_ns;
  start.end_ns = at.until_ns;
  path.push_back(start);
}

Causes::At Causes::request_of(const Node& message) const {
  const Node* request =
      message.request < message.cause ? find(message.peer, message.request) : nullptr;
  if (request == nullptr) return {};
  return {message.peer, message.request, request->time_ns};
}

bool Causes::step_back(const Node& node, At& at, std::vector<Span>& path) const {
  if (node.kind == Node::Kind::start) return false;
  if (node.kind == Node::Kind::gradient) {
    gradient_spans(at.rank, node, path);
  } else {
    if (node.cause < 0) return false;  // a message whose sending is not in the trace
    message_spans(at.rank, node, path);
    at.rank = node.peer;
  }
  at.until_ns = node.begin_ns;
  at.id = node.cause;
  return true;
}

}  // namespace grapevine
