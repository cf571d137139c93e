// TraceSurvey: what a writer of one pass has to know of the records to come.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "apps/trace/perfetto/message_flows.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// Numbers in the order in which they were added, as runs of equal differences: those of the steps
// of a rank take the memory of one.
class NumberRuns {
 public:
  void add(std::int64_t number);
  std::optional<std::int64_t> front() const;
  // REQUIRES: front().
  void pop();

 private:
  struct Run {
    std::int64_t first = 0, difference = 0, count = 0;
  };
  static std::int64_t at(const Run& run, std::int64_t place);
  std::vector<Run> runs_;
  std::size_t run_ = 0;     // of the front
  std::int64_t place_ = 0;  // in this run
};

// The first pass over a trace. Not thread-safe.
class TraceSurvey {
 public:
  explicit TraceSurvey(std::int32_t ranks);
  void learn(const TraceRecord& record);

  // For the second pass: what is still to come, which the pass takes away as it goes.
  MessageFlows& flows() { return flows_; }
  NumberRuns& steps(Rank rank) { return steps_[static_cast<std::size_t>(rank)]; }
  NumberRuns& operations(Rank rank) { return operations_[static_cast<std::size_t>(rank)]; }

 private:
  MessageFlows flows_;
  std::vector<NumberRuns> steps_;       // by rank: of `step_done`
  std::vector<NumberRuns> operations_;  // of `reduced`
};

}  // namespace grapevine
