// ClockFit: the clock of one process in terms of another's.
#pragma once
#include <cstdint>
#include <vector>

#include "messages/trace/trace_record.hpp"

namespace grapevine {

// The samples of one burst are no further apart than this.
inline constexpr std::uint64_t kClockBurstNs = 5'000'000'000;

// REQUIRES: first <= sent.
bool of_one_burst(std::int64_t first_ns, std::int64_t sent_ns);
std::int64_t round_trip(const ClockSample& sample);

// remote -> coordinator: the offset is that of the fastest answer of each burst of questions
// (Cristian 1989: the error is at most half of its round trip), and linear between bursts, so that
// drift is followed.
class ClockFit {
 public:
  ClockFit() = default;                       // the same clock
  explicit ClockFit(std::int64_t offset_ns);  // coordinator = remote + offset
  // Of one process, in the order of time. REQUIRES: not empty.
  explicit ClockFit(const std::vector<ClockSample>& samples);

  std::int64_t to_coordinator(std::int64_t remote_ns) const;
  // Where the coordinator's clock itself is `offset_ns` behind a common one.
  void shift_by(std::int64_t offset_ns);

 private:
  struct Knot {
    std::int64_t remote_ns = 0, offset_ns = 0;
  };
  std::vector<Knot> knots_;  // by increasing remote_ns; none: offset 0
};

}  // namespace grapevine
