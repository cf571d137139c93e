// Causes: for each event of a rank, the reason why it did not happen earlier.
//
// A rank acts only in handlers: of a gradient, of a message, of a timer. The first two are in the
// trace, and all that a handler does follows its record. Backwards from an event there is therefore
// one path (the critical path of Yang and Miller, ICDCS 1988): the rank handled a message, the
// message was on its way, its sender handled a gradient, its worker computed it, and so on, from
// rank to rank. The spans of the path do not overlap and leave no gap.
#pragma once
#include <cstdint>
#include <vector>

#include "apps/trace/run_layout.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

enum class SpanKind : std::uint8_t {
  compute,   // the worker of `rank` had the request, and had its batch
  data,      // the worker of `rank` waited for its batch
  link,      // a message of `rank` was on its way to `peer`
  server,    // `rank`, a server, had the reason for its message and had not sent it
  handling,  // the same of a worker, or `rank` handled something else before a message
  timer,     // `rank` waited for a timer
  members,   // `rank` waited until the members had agreed on the loss of `peer`
  start      // `rank` had not begun, or the trace does not say more
};

// Nanoseconds by the clock of the trace.
struct Span {
  SpanKind kind = SpanKind::start;
  Rank rank = 0;
  Rank peer = -1;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t from_ns = 0;                 // what of the span is earlier is not on the path
  bool first = false;                       // of a rank's first gradient: includes its warm-up
  Step step = -1;                           // of `rank`, of a gradient
  PayloadKind payload = PayloadKind::none;  // of link, server and handling: of the message
  std::int64_t operation = -1;
  std::int32_t index = -1;

  std::int64_t length_ns() const { return end_ns - begin_ns; }
};

// Takes the records of a trace in causal order. Keeps a bounded history of each rank; memory does
// not grow with the trace. Not thread-safe.
class Causes {
 public:
  // `layout` outlives this.
  explicit Causes(const RunLayout& layout);

  // REQUIRES: layout.is_rank(record.rank).
  void add(const TraceRecord& record);
  // The spans that ended with the last record, or with the one before it of the same rank: of
  // gradients, links, servers and handlers; those of handlers as a whole are without a payload.
  // Valid until the next add().
  const std::vector<Span>& completed() const { return completed_; }
  // The path that led to `record`, backwards to `begin_ns`, where its last span may begin earlier,
  // and on to the first handler of record.rank before `begin_ns`, where that is near.
  // REQUIRES: `record` was added last.
  void trace_back(const TraceRecord& record, std::int64_t begin_ns, std::vector<Span>& path);
  // How often a path had to end early, because the history did not reach back far enough.
  std::int64_t cut_short() const { return cut_short_; }

 private:
  using NodeId = std::int64_t;  // of a rank, from 0; -1: none
  // The begin of a handler.
  struct Node {
    enum class Kind : std::uint8_t { start, gradient, message };
    Kind kind = Kind::start;
    bool first = false;
    PayloadKind payload = PayloadKind::none;
    Rank peer = -1;           // that sent the message
    std::int32_t index = -1;  // of the message
    std::int64_t time_ns = 0;
    std::int64_t begin_ns = 0;  // the gradient was asked for, the message was sent
    NodeId cause = -1;          // of that: of this rank, or of `peer`
    NodeId request = -1;        // of `peer`, a server: what the message answers
    std::int64_t data_ns = 0;
    std::int64_t busy_begin_ns = 0, busy_end_ns = 0;  // the rank handled something else
    std::int64_t operation = -1;                      // of the message; of a gradient its step
    std::uint64_t sequence = 0;
  };
  // A place on a path.
  struct At {
    Rank rank = 0;
    NodeId id = -1;  // the newest handler that may be the reason
    std::int64_t until_ns = 0;
  };
  struct Sent {
    std::uint64_t sequence = 0;  // 0: none
    std::int64_t time_ns = 0;
    NodeId cause = -1, request = -1;
    std::int64_t operation = -1;
    std::int32_t index = -1;
    PayloadKind payload = PayloadKind::none;
  };
  struct OfRank {
    std::vector<Node> nodes;  // a ring, by id
    NodeId count = 0;         // of all nodes so far
    std::vector<Sent> sent;   // a ring, by sequence; grows to its bound
    std::size_t sent_count = 0;
    std::int64_t first_ns = 0, last_ns = 0;
    std::int64_t busy_begin_ns = 0, busy_end_ns = 0;  // its last long handlers without a break
    std::int64_t asked_ns = -1;                       // -1: no gradient is being computed
    NodeId asked_by = -1;
    std::int64_t early_data_ns = 0;  // of a gradient whose record follows
    Step early_data_step = -1;
    Rank lost = -1;  // another rank, whose loss may end a wait; -1: none
    bool has_produced = false;
    bool has_pending = false;  // the last node is a gradient that is not in completed_ yet
    // Of servers.
    std::vector<NodeId> asked_of, committed_of;  // by client: its newest request and commit
    NodeId released = -1;                        // the newest message that may end a turn
  };

  OfRank& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const Node* find(Rank rank, NodeId id) const;
  Node* newest(OfRank& rank);
  const Sent* find_sent(Rank rank, std::uint64_t sequence) const;
  void push(OfRank& rank, const Node& node);
  void keep(OfRank& rank, const Sent& sent);
  void follow(At at, Rank waiter, std::int64_t begin_ns, std::vector<Span>& path);
  // The request that `message` of a server has answered, if there was another reason for its time.
  At request_of(const Node& message) const;
  // Adds what led to `node`; false: the trace does not tell.
  bool step_back(const Node& node, At& at, std::vector<Span>& path) const;
  void on_produced(OfRank& rank, const TraceRecord& record);
  void on_data_wait(OfRank& rank, const TraceRecord& record);
  void on_received(OfRank& rank, const TraceRecord& record);
  void end_handler(OfRank& rank, Rank number);
  void note_request(OfRank& rank, const TraceRecord& record);
  void on_sent(OfRank& rank, const TraceRecord& record);
  NodeId cause_of_answer(const OfRank& rank, const TraceRecord& answer) const;
  NodeId request_of_answer(const OfRank& rank, const TraceRecord& answer) const;
  void complete_gradient(OfRank& rank, Rank number);
  void gradient_spans(Rank rank, const Node& node, std::vector<Span>& out) const;
  void message_spans(Rank rank, const Node& node, std::vector<Span>& out) const;
  Span handling(Rank rank, std::int64_t begin_ns, std::int64_t end_ns) const;

  const RunLayout& layout_;
  std::size_t most_nodes_, most_sent_;  // of each rank
  std::vector<OfRank> ranks_;
  std::vector<Span> completed_;
  std::int64_t cut_short_ = 0;
};

}  // namespace grapevine
