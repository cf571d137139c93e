// UsualTimes: how long the spans of a run usually are, and which ranks and links are always slow.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "apps/trace/causes.hpp"
#include "apps/trace/time_histogram.hpp"

namespace grapevine {

// What of a span is more than usual. Nanoseconds.
struct Excess {
  std::int64_t usual_ns = 0;     // of this rank or link; the rest is unusual
  std::int64_t ordinary_ns = 0;  // of the other ranks or links, at most usual_ns; they are equal
                                 // unless this one is always slow
  bool is_unusual = false;       // one stall
};

// The spans of one rank (compute, data, handling, server) or link that carry one kind of message
// have a usual time: their median. A span is unusual where it exceeds it by more than
//   max(least, median, 16 (median - lower quartile)).
// The lower half of the times is not changed by stalls, which are in the upper half.
// A rank is always slow where its median exceeds the median of the other ranks' medians by more
// than half of it and 1 ms; a link where its own is more than three times as long, and 1 ms longer,
// than those of the other links that connect ranks as near (one process, one host, two hosts).
class UsualTimes {
 public:
  // `layout` outlives this; `least_ns`: no shorter excess is unusual.
  UsualTimes(const RunLayout& layout, std::int64_t least_ns);

  // REQUIRES of the adds: finish() has not been called.
  void add(const Span& span);
  void add_step(Rank rank, std::int64_t length_ns);
  void add_wait(Rank rank, std::int64_t length_ns);
  void finish();

  // REQUIRES: finish() has been called. `active_ns`: the length of the span without pauses.
  Excess excess(const Span& span, std::int64_t active_ns) const;
  std::int64_t usual_ns(const Span& span) const { return excess(span, 0).usual_ns; }
  std::int64_t usual_step_ns(Rank rank) const;
  std::int64_t usual_wait_ns(Rank rank) const;

 private:
  struct Usual {
    TimeHistogram times;
    std::int64_t usual_ns = 0, ordinary_ns = 0, limit_ns = 0;
  };
  using Key = std::uint64_t;
  struct Part {
    SpanKind kind;
    Rank rank, peer;
    PayloadKind payload;
  };

  using Alike = std::tuple<SpanKind, PayloadKind, int>;  // the last: how far the ends are apart

  Key key_of(const Span& span) const;
  Alike alike(const Part& part) const { return {part.kind, part.payload, distance(part)}; }
  Part part_of(Key key) const;
  int distance(const Part& part) const;
  std::int64_t limit_of(std::int64_t usual_ns, std::int64_t spread_ns) const;
  const Usual* find(const Span& span) const;
  void find_slow();

  const RunLayout& layout_;
  const std::int64_t least_ns_;
  std::unordered_map<Key, Usual> usual_;
  std::map<Alike, Usual> alike_;
  std::vector<std::int64_t> first_computes_;  // one of each rank
  std::int64_t usual_first_ns_ = 0;
  std::vector<TimeHistogram> steps_, waits_;  // by rank
};

}  // namespace grapevine
