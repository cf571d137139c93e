// TimelineTrack: slices and instants of one track, always nested and in the order of time.
#pragma once
#include <cstdint>

#include "apps/trace/perfetto/timeline_sink.hpp"

namespace grapevine {

// Described at its first use, so that tracks without events do not show. A time before the newest
// one of the track is moved up to it. Not thread-safe.
class TimelineTrack {
 public:
  // `sink` outlives this object.
  TimelineTrack(TimelineSink& sink, TimelineTrackName name);

  void begin(TimelineEvent event);
  // Of the slice that has begun last. REQUIRES: open() > 0.
  void end(std::int64_t time_ns);
  void end_all(std::int64_t time_ns);
  void instant(TimelineEvent event);
  void count(std::int64_t time_ns, std::int64_t value);

  int open() const { return open_; }                 // slices
  std::int64_t last_ns() const { return last_ns_; }  // the newest time

 private:
  std::int64_t at(std::int64_t time_ns);

  TimelineSink* sink_;
  TimelineTrackName name_;
  bool described_ = false;
  int open_ = 0;
  std::int64_t last_ns_ = 0;
  std::int64_t instant_ns_ = -1;  // of the newest instant; -1: none yet
};

}  // namespace grapevine
