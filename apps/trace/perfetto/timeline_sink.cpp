#include "apps/trace/perfetto/timeline_sink.hpp"

namespace grapevine {

const char* name_of(TimelineCategory category) {
  switch (category) {
    case TimelineCategory::step:
      return "step";
    case TimelineCategory::wait:
      return "wait";
    case TimelineCategory::compute:
      return "compute";
    case TimelineCategory::exchange:
      return "exchange";
    case TimelineCategory::message:
      return "message";
    case TimelineCategory::model:
      return "model";
    case TimelineCategory::run:
      return "run";
  }
  return "";
}

const char* name_of(DetailName name) {
  switch (name) {
    case DetailName::step:
      return "step";
    case DetailName::from:
      return "from";
    case DetailName::to:
      return "to";
    case DetailName::payload:
      return "payload";
    case DetailName::operation:
      return "operation";
    case DetailName::round:
      return "round";
    case DetailName::index:
      return "index";
    case DetailName::bytes:
      return "bytes";
    case DetailName::staleness:
      return "staleness";
    case DetailName::version:
      return "version";
    case DetailName::origin:
      return "origin";
    case DetailName::origin_step:
      return "origin_step";
    case DetailName::members:
      return "members";
    case DetailName::view:
      return "view";
    case DetailName::checkpoint:
      return "checkpoint";
    case DetailName::run:
      return "run";
  }
  return "";
}

Details::Details(const TraceRecord& record) {
  add(DetailName::step, record.step);
  if (record.peer >= 0)
    add(record.kind == EventKind::sent ? DetailName::to : DetailName::from, record.peer);
  add_place(record);
  if (record.bytes > 0) add(DetailName::bytes, static_cast<std::int64_t>(record.bytes));
  add_update(record);
}

void Details::add_place(const TraceRecord& record) {
  if (record.payload != PayloadKind::none)
    details_[count_++] = {DetailName::payload, 0, name_of(record.payload)};
  if (record.kind == EventKind::cut || record.kind == EventKind::resumed) {
    add(DetailName::checkpoint, record.operation);
    add(DetailName::run, static_cast<std::int64_t>(record.sequence));
    return;
  }
  if (record.operation >= 0) add(DetailName::operation, record.operation);
  if (record.round >= 0) add(DetailName::round, record.round);
  if (record.index >= 0) add(DetailName::index, record.index);
}

void Details::add_update(const TraceRecord& record) {
  switch (record.kind) {
    case EventKind::applied:
      add(DetailName::staleness, record.staleness);
      add(DetailName::version, record.version);
      add(DetailName::origin, record.origin);
      add(DetailName::origin_step, record.origin_step);
      return;
    case EventKind::committed:
    case EventKind::dropped:
      add(DetailName::origin, record.origin);
      add(DetailName::origin_step, record.origin_step);
      return;
    case EventKind::contributed:
      add(DetailName::staleness, record.staleness);
      return;
    case EventKind::produced:
      add(DetailName::version, record.version);
      return;
    case EventKind::reduced:
      add(DetailName::members, static_cast<std::int64_t>(record.members.size()));
      return;
    case EventKind::view:
      add(DetailName::view, record.view);
      return;
    default:
      return;
  }
}

}  // namespace grapevine
