#include "actors/record/trace_recorder.hpp"

#include "messages/payload_place.hpp"
#include "messages/time.hpp"

namespace grapevine {
namespace {

// A shorter wait for a batch is no record.
constexpr double kLeastDataWait = 1e-4;  // seconds

std::int64_t in_ns(double seconds) { return from_seconds(seconds).count(); }

}  // namespace

TraceRecord& TraceRecorder::add(std::int64_t time_ns, EventKind kind, Step step) {
  TraceRecord& record = records_.emplace_back();
  record.time_ns = time_ns;
  record.kind = kind;
  record.rank = record.origin = rank_;
  record.step = record.origin_step = record.version = step;
  record.view = view_;
  return record;
}

TraceRecord* TraceRecorder::add(std::int64_t time_ns, const Event& event, Step sampled_by) {
  if (!on_ || sampled_by % sampled_ != 0) return nullptr;
  TraceRecord& record = add(time_ns, event.kind, event.step);
  record.peer = event.peer;
  record.origin = event.stamp.origin;
  record.origin_step = event.stamp.step;
  record.version = event.stamp.version;
  record.hop = event.stamp.hop;
  record.sequence = event.stamp.sequence;
  record.staleness = event.staleness;
  record.bytes = event.bytes;
  record.operation = event.operation;
  record.members = event.members;
  return &record;
}

void TraceRecorder::event(std::int64_t time_ns, const Event& event) {
  add(time_ns, event, event.step);
}

// Both ends of a message go by its stamp, so that both or none are recorded.
void TraceRecorder::message(std::int64_t time_ns, const Event& event, const Payload& payload) {
  TraceRecord* record = add(time_ns, event, event.stamp.step);
  if (record == nullptr) return;
  const PayloadPlace place = place_of(payload);
  record->payload = place.kind;
  record->operation = place.operation;
  record->round = place.round;
  record->index = place.index;
}

void TraceRecorder::wait_end(std::int64_t time_ns, const Event& event, Rank from,
                             std::uint64_t sequence) {
  TraceRecord* record = add(time_ns, event, event.step);
  if (record == nullptr) return;
  record->peer = from;
  record->sequence = sequence;
}

void TraceRecorder::asked(std::int64_t time_ns, Step step, Version version) {
  if (!on_ || step % sampled_ != 0) return;
  add(time_ns, EventKind::asked, step).version = version;
}

void TraceRecorder::produced(std::int64_t time_ns, const Event& event, double data_s,
                             double compute_s) {
  if (!on_ || event.step % sampled_ != 0) return;
  if (data_s >= kLeastDataWait)
    add(time_ns, EventKind::data_wait, event.step).duration_ns = in_ns(data_s);
  add(time_ns, event, event.step)->duration_ns = in_ns(compute_s);
}

void TraceRecorder::cut(std::int64_t time_ns, Step step, std::int64_t id) {
  if (!on_) return;
  TraceRecord& record = add(time_ns, EventKind::cut, step);
  record.operation = id;
  record.sequence = run_;
}

void TraceRecorder::resumed(std::int64_t time_ns, Step step, std::uint64_t run, std::int64_t id) {
  if (!on_) return;
  TraceRecord& record = add(time_ns, EventKind::resumed, step);
  record.operation = id;
  record.sequence = run;
}

void TraceRecorder::view(std::int64_t time_ns, Step step, Rank peer) {
  ++view_;
  if (on_) add(time_ns, EventKind::view, step).peer = peer;
}

}  // namespace grapevine
