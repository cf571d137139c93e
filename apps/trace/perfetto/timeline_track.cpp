#include "apps/trace/perfetto/timeline_track.hpp"

#include <algorithm>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

TimelineTrack::TimelineTrack(TimelineSink& sink, TimelineTrackName name)
    : sink_(&sink), name_(std::move(name)) {}

std::int64_t TimelineTrack::at(std::int64_t time_ns) {
  if (!std::exchange(described_, true)) sink_->describe(name_);
  return last_ns_ = std::max(last_ns_, time_ns);
}

void TimelineTrack::begin(TimelineEvent event) {
  event.time_ns = at(event.time_ns);
  sink_->begin(name_, event);
  ++open_;
}

void TimelineTrack::end(std::int64_t time_ns) {
  GRAPEVINE_CHECK(open_ > 0, name_.name, ": a slice ends that has not begun");
  --open_;
  sink_->end(name_, at(time_ns));
}

void TimelineTrack::end_all(std::int64_t time_ns) {
  while (open_ > 0) end(time_ns);
}

void TimelineTrack::instant(TimelineEvent event) {
  event.time_ns = at(event.time_ns);
  if (std::exchange(instant_ns_, event.time_ns) != event.time_ns)
    return sink_->instant(name_, event);
  sink_->begin(name_, event);
  sink_->end(name_, event.time_ns);
}

void TimelineTrack::count(std::int64_t time_ns, std::int64_t value) {
  sink_->count(name_, at(time_ns), value);
}

}  // namespace grapevine
