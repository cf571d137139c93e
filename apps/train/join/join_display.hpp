// JoinDisplay: the lines of a process that joins a run, until its ranks train.
#pragma once
#include <chrono>
#include <functional>
#include <iosfwd>
#include <set>

#include "apps/train/run_end.hpp"

namespace grapevine {

// A process that is there when the run begins prints nothing: process 0 reports the run. One that
// joins later waits for the state of another rank, which may be long.
class JoinDisplay final : public RunEnd {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  // REQUIRES: `err` outlives this object; no other thread writes to it during the run.
  explicit JoinDisplay(std::ostream& err, Clock clock = std::chrono::steady_clock::now);

  // A line at the first part of a rank, every two seconds, and when the rank trains.
  void on_state_arrival(const StateArrival& arrival) override;

 private:
  void say(const std::string& line);

  std::ostream& err_;
  const Clock clock_;
  std::chrono::steady_clock::time_point last_line_{};
  std::set<Rank> receiving_;  // ranks whose first part has arrived
};

}  // namespace grapevine
