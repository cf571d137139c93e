#include "apps/trace/perfetto/trace_survey.hpp"

namespace grapevine {

// Modulo 2^64, so that no numbers overflow.
std::int64_t NumberRuns::at(const Run& run, std::int64_t place) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(run.first) +
                                   static_cast<std::uint64_t>(run.difference) *
                                       static_cast<std::uint64_t>(place));
}

void NumberRuns::add(std::int64_t number) {
  if (!runs_.empty()) {
    Run& last = runs_.back();
    if (last.count == 1)
      last.difference = static_cast<std::int64_t>(static_cast<std::uint64_t>(number) -
                                                  static_cast<std::uint64_t>(last.first));
    if (at(last, last.count) == number) {
      ++last.count;
      return;
    }
  }
  runs_.push_back({number, 0, 1});
}

std::optional<std::int64_t> NumberRuns::front() const {
  if (run_ >= runs_.size()) return std::nullopt;
  return at(runs_[run_], place_);
}

void NumberRuns::pop() {
  if (++place_ < runs_[run_].count) return;
  ++run_;
  place_ = 0;
}

TraceSurvey::TraceSurvey(std::int32_t ranks)
    : flows_(ranks),
      steps_(static_cast<std::size_t>(ranks)),
      operations_(static_cast<std::size_t>(ranks)) {}

void TraceSurvey::learn(const TraceRecord& record) {
  flows_.learn(record);
  if (record.kind == EventKind::step_done) steps(record.rank).add(record.step);
  if (record.kind == EventKind::reduced) operations(record.rank).add(record.operation);
}

}  // namespace grapevine
