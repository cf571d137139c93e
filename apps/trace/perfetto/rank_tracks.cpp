#include "apps/trace/perfetto/rank_tracks.hpp"

#include <algorithm>
#include <utility>

#include "apps/trace/training_clock.hpp"

namespace grapevine {
namespace {

TimelineCategory category_of(EventKind kind) {
  switch (kind) {
    case EventKind::sent:
    case EventKind::received:
      return TimelineCategory::message;
    case EventKind::wait_begin:
    case EventKind::wait_end:
      return TimelineCategory::wait;
    case EventKind::cut:
    case EventKind::resumed:
    case EventKind::view:
      return TimelineCategory::run;
    default:
      return TimelineCategory::model;
  }
}

std::string instant_name(const TraceRecord& record) {
  if (record.kind == EventKind::wait_end) return "wait ended";
  if (record.kind == EventKind::cut) return "checkpoint";
  std::string name = name_of(record.kind);
  const bool is_message = record.kind == EventKind::sent || record.kind == EventKind::received;
  if (is_message && record.payload != PayloadKind::none) {
    name += ' ';
    name += name_of(record.payload);
  }
  return name;
}

TimelineEvent slice(std::int64_t time_ns, TimelineCategory category, const std::string& name,
                    const TraceRecord& record) {
  TimelineEvent event;
  event.time_ns = time_ns;
  event.category = category;
  event.name = name;
  event.record = &record;
  return event;
}

// Where the number in the name is that of one slice.
TimelineEvent numbered_slice(std::int64_t time_ns, TimelineCategory category,
                             const std::string& name) {
  TimelineEvent event;
  event.time_ns = time_ns;
  event.category = category;
  event.name = name;
  event.recurs = false;
  return event;
}

}  // namespace

// ---- the peer ----

PeerTrack::PeerTrack(TimelineTrack track, NumberRuns& steps, bool sampled)
    : track_(std::move(track)), steps_(steps), sampled_(sampled) {}

void PeerTrack::add(const TraceRecord& record, FlowRole flow) {
  if (begins_anew(record)) {
    track_.end_all(track_.last_ns());  // what was open then has not lasted until now
    wait_.reset();
    in_step_ = false;
    step_ended_ns_.reset();
  }
  if (!in_step_) begin_step(record);
  switch (record.kind) {
    case EventKind::asked:
    case EventKind::produced:
    case EventKind::data_wait:
      return;  // on the worker's track
    case EventKind::wait_begin:
      if (wait_) end_wait(record.time_ns);
      return begin_wait(record);
    case EventKind::wait_end:
      if (record.peer >= 0) instant(record, flow);
      if (wait_) end_wait(record.time_ns);
      return;
    case EventKind::step_done:
      return end_step(record);
    default:
      return instant(record, flow);
  }
}

// Nothing where no step will be finished any more.
void PeerTrack::begin_step(const TraceRecord& record) {
  const auto step = steps_.front();
  if (!step) return;
  const std::int64_t from = sampled_ ? record.time_ns : step_ended_ns_.value_or(record.time_ns);
  track_.begin(numbered_slice(from, TimelineCategory::step, "step " + std::to_string(*step)));
  in_step_ = true;
}

void PeerTrack::begin_wait(const TraceRecord& record) {
  const std::string name =
      record.peer < 0 ? "waiting" : "waiting for rank " + std::to_string(record.peer);
  track_.begin(slice(record.time_ns, TimelineCategory::wait, name, record));
  wait_ = record;
}

void PeerTrack::end_wait(std::int64_t time_ns) {
  track_.end(time_ns);
  wait_.reset();
}

void PeerTrack::end_step(const TraceRecord& record) {
  std::optional<TraceRecord> wait = wait_;
  if (wait) end_wait(record.time_ns);
  track_.end(record.time_ns);
  steps_.pop();
  step_ended_ns_ = record.time_ns;
  in_step_ = false;
  if (!wait) return;
  wait->time_ns = record.time_ns;
  begin_step(*wait);
  begin_wait(*wait);
}

void PeerTrack::instant(const TraceRecord& record, FlowRole flow) {
  const std::string name = instant_name(record);
  TimelineEvent event = slice(record.time_ns, category_of(record.kind), name, record);
  event.flow = flow;
  track_.instant(event);
}

// ---- the worker ----

WorkerTrack::WorkerTrack(TimelineTrack track) : track_(std::move(track)) {}

bool WorkerTrack::belongs(const TraceRecord& record) const {
  const bool of_gradient =
      record.kind == EventKind::produced || record.kind == EventKind::data_wait;
  return of_gradient && record.time_ns == gradient_->record.time_ns &&
         record.step == gradient_->record.step;
}

void WorkerTrack::add(const TraceRecord& record) {
  if (gradient_ && !belongs(record)) flush();
  take(record);
  newest_ns_ = record.time_ns;
}

void WorkerTrack::take(const TraceRecord& record) {
  switch (record.kind) {
    case EventKind::asked:
      asked_ = record;
      return;
    case EventKind::produced:
      if (!gradient_) gradient_ = Gradient{record, 0, 0};
      gradient_->record = record;
      gradient_->computed_ns = record.duration_ns;
      return;
    case EventKind::data_wait:
      if (!gradient_) gradient_ = Gradient{record, 0, 0};
      gradient_->waited_ns = record.duration_ns;
      return;
    case EventKind::resumed:
    case EventKind::view:
      return begins_anew(record) ? give_up(newest_ns_) : void();
    default:
      return;
  }
}

// The wait comes first. Neither begins before the worker was asked, nor before the last gradient.
void WorkerTrack::flush() {
  const Gradient gradient = *std::exchange(gradient_, std::nullopt);
  const std::int64_t end = gradient.record.time_ns;
  const std::int64_t earliest =
      std::min(end, std::max(track_.last_ns(), asked_ ? asked_->time_ns : 0));
  asked_.reset();
  const std::int64_t waited = std::clamp<std::int64_t>(gradient.waited_ns, 0, end - earliest);
  const std::int64_t computed =
      std::clamp<std::int64_t>(gradient.computed_ns, 0, end - earliest - waited);
  const std::int64_t begin = end - computed - waited;
  const std::string name = "computing step " + std::to_string(gradient.record.step);
  TimelineEvent computing = slice(begin, TimelineCategory::compute, name, gradient.record);
  computing.recurs = false;
  track_.begin(computing);
  if (gradient.waited_ns > 0) {
    const std::string data_wait = "data wait";
    track_.begin(slice(begin, TimelineCategory::wait, data_wait, gradient.record));
    track_.end(begin + waited);
  }
  track_.end(end);
}

// The end of the trace: a gradient that has not come.
void WorkerTrack::give_up(std::int64_t time_ns) {
  if (!asked_) return;
  const std::string name = "computing step " + std::to_string(asked_->step) + ", not finished";
  TimelineEvent computing = slice(asked_->time_ns, TimelineCategory::compute, name, *asked_);
  computing.recurs = false;
  track_.begin(computing);
  track_.end(time_ns);
  asked_.reset();
}

void WorkerTrack::finish(std::int64_t time_ns) {
  if (gradient_) flush();
  give_up(time_ns);
}

// ---- the exchange ----

ExchangeTrack::ExchangeTrack(TimelineTrack track, NumberRuns& operations)
    : track_(std::move(track)), operations_(operations) {}

void ExchangeTrack::add(const TraceRecord& record) {
  if (begins_anew(record)) return track_.end_all(track_.last_ns());
  const bool first = record.kind == EventKind::sent || record.kind == EventKind::contributed;
  if (!first && record.kind != EventKind::reduced) return;
  const auto operation = operations_.front();
  if (!operation || record.operation != *operation) return;
  if (track_.open() == 0)
    track_.begin(numbered_slice(record.time_ns, TimelineCategory::exchange,
                                "operation " + std::to_string(*operation)));
  if (record.kind != EventKind::reduced) return;
  track_.end(record.time_ns);
  operations_.pop();
}

}  // namespace grapevine
