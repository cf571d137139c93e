// Records of a trace at random, with the extremes of every field among them.
#pragma once
#include <cstdint>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "messages/trace/trace_record.hpp"

namespace grapevine::testing_trace {

using Rng = std::mt19937_64;

inline constexpr Rank kRandomMembers = 100;  // members of a record are below

// Mostly small, sometimes of any size, sometimes an end of the range.
template <class Int>
Int random_whole(Rng& rng, Int least = std::numeric_limits<Int>::min()) {
  constexpr Int kMost = std::numeric_limits<Int>::max();
  switch (rng() % 8) {
    case 0:
      return least;
    case 1:
      return kMost;
    case 2: {
      const auto any = static_cast<Int>(rng());
      return any < least ? kMost : any;
    }
    default: {
      const auto small = static_cast<Int>(rng() % 1000);
      return small < least ? least : small;
    }
  }
}

inline TraceRecord random_record(Rng& rng, Rank rank) {
  TraceRecord r;
  r.kind = static_cast<EventKind>(1 + rng() % kLastEventKind);
  r.rank = rank;
  r.time_ns = random_whole<std::int64_t>(rng);
  const auto sometimes = [&rng](auto& field, auto value) {
    if (rng() % 2 == 0) field = value;
  };
  sometimes(r.peer, random_whole<Rank>(rng));
  r.step = random_whole<Step>(rng);
  r.origin = rng() % 2 == 0 ? rank : random_whole<Rank>(rng);
  r.origin_step = rng() % 2 == 0 ? r.step : random_whole<Step>(rng);
  r.version = rng() % 2 == 0 ? r.origin_step : random_whole<Version>(rng);
  sometimes(r.sequence, random_whole<std::uint64_t>(rng));
  sometimes(r.staleness, random_whole<std::int64_t>(rng));
  sometimes(r.bytes, random_whole<std::uint64_t>(rng));
  sometimes(r.duration_ns, random_whole<std::int64_t>(rng));
  sometimes(r.payload, static_cast<PayloadKind>(rng() % (kLastPayloadKind + 1)));
  sometimes(r.operation, random_whole<std::int64_t>(rng));
  sometimes(r.round, random_whole<std::int32_t>(rng));
  sometimes(r.index, random_whole<std::int32_t>(rng));
  sometimes(r.hop, random_whole<std::uint16_t>(rng));
  sometimes(r.view, random_whole<std::uint32_t>(rng));
  if (rng() % 4 == 0)
    for (Rank member = 0; member < kRandomMembers; ++member)
      if (rng() % 3 != 0) r.members.push_back(member);
  return r;
}

inline std::vector<TraceRecord> random_records(Rng& rng, Rank rank, std::size_t count) {
  std::vector<TraceRecord> records;
  while (records.size() < count) records.push_back(random_record(rng, rank));
  return records;
}

}  // namespace grapevine::testing_trace

namespace grapevine {

inline auto fields_of_record(const TraceRecord& r) {
  return std::tie(r.time_ns, r.kind, r.rank, r.peer, r.step, r.origin, r.origin_step, r.version,
                  r.sequence, r.staleness, r.bytes, r.duration_ns, r.payload, r.operation, r.round,
                  r.index, r.hop, r.view, r.members);
}
inline bool operator==(const TraceRecord& a, const TraceRecord& b) {
  return fields_of_record(a) == fields_of_record(b);
}

}  // namespace grapevine
