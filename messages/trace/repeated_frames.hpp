// RepeatedFrames: what each segment of a trace file begins with, of all that came before it.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/trace/trace_record.hpp"

namespace grapevine {

// Does not grow with the run: of each burst of comparisons the fastest one counts (ClockFit), of
// older bursts every second one stays, and older changes of settings go. Not thread-safe.
class RepeatedFrames {
 public:
  // The frames take no more, but for two comparisons of each clock and one change.
  explicit RepeatedFrames(std::uint64_t bytes) : bytes_(bytes) {}

  // Of each process in the order of time.
  void add(const ClockSample& sample);
  void add(const SettingsChange& change);
  std::string frames() const;

 private:
  struct Burst {
    std::int64_t begin_ns = 0;
    ClockSample best;
  };
  std::size_t most_bursts() const;

  const std::uint64_t bytes_;
  // By process and the zero of its clock: one that returns has another.
  std::map<std::pair<std::int32_t, std::optional<std::int64_t>>, std::vector<Burst>> clocks_;
  std::deque<std::string> changes_;
  std::uint64_t change_bytes_ = 0;
};

}  // namespace grapevine
