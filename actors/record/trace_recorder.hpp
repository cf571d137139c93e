// TraceRecorder: the records of one rank that its tracer does not have yet.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "algorithms/env.hpp"
#include "messages/envelope.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// Belongs to one Peer; not thread-safe. Times: nanoseconds since the zero of the process's trace.
class TraceRecorder {
 public:
  static constexpr std::size_t kBatch = 512;  // records for one message to the tracer

  TraceRecorder() = default;  // records nothing
  // Of every `sampled`-th step; `run` names the run in its cuts.
  TraceRecorder(Rank rank, std::int64_t sampled, std::uint64_t run)
      : on_(true), rank_(rank), sampled_(sampled), run_(run) {}

  void event(std::int64_t time_ns, const Event& event);
  // Sent or received.
  void message(std::int64_t time_ns, const Event& event, const Payload& payload);
  // The wait of `event` was ended by the message (`from`, `sequence`); from -1: by none.
  void wait_end(std::int64_t time_ns, const Event& event, Rank from, std::uint64_t sequence);
  // The worker was asked for the gradient of `step` at `version`.
  void asked(std::int64_t time_ns, Step step, Version version);
  // It came; see Gradient.
  void produced(std::int64_t time_ns, const Event& event, double data_s, double compute_s);
  void cut(std::int64_t time_ns, Step step, std::int64_t id);
  // From the checkpoint of cut `id` of run `run`.
  void resumed(std::int64_t time_ns, Step step, std::uint64_t run, std::int64_t id);
  // `peer` takes part no more.
  void view(std::int64_t time_ns, Step step, Rank peer);

  bool empty() const { return records_.empty(); }
  bool full() const { return records_.size() >= kBatch; }
  std::vector<TraceRecord> take() { return std::exchange(records_, {}); }

 private:
  // Null where the step is not recorded.
  TraceRecord* add(std::int64_t time_ns, const Event& event, Step sampled_by);
  TraceRecord& add(std::int64_t time_ns, EventKind kind, Step step);

  bool on_ = false;
  Rank rank_ = 0;
  std::int64_t sampled_ = 1;
  std::uint64_t run_ = 0;
  std::uint32_t view_ = 0;
  std::vector<TraceRecord> records_;
};

}  // namespace grapevine
