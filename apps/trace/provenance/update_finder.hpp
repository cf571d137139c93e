// UpdateFinder: the first pass of a search for provenance.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "apps/trace/provenance/provenance.hpp"

namespace grapevine {

// The steps of one rank that a trace has, for the error about one that it lacks.
class KnownSteps {
 public:
  explicit KnownSteps(Step wanted) : wanted_(wanted) {}

  // `taken`: the rank has taken the step. What arrives after its last one is of a step that it
  // never takes, which no error offers.
  void add(Step step, bool taken);
  bool has_wanted() const { return has_wanted_; }
  // "the steps 0 to 499, and next to this one 10 and 20".
  std::string in_words(const std::string& noun) const;

 private:
  const Step wanted_;
  bool any_ = false, has_wanted_ = false;
  Step first_ = 0, last_ = 0;
  std::optional<Step> below_, above_;  // the nearest
};

// What an `applied`, `committed` or `contributed` record says of its update.
TracedUpdate update_of(const TraceRecord& record);

// Which updates entered the model of a rank in a step, and which operations ended there.
class UpdateFinder {
 public:
  UpdateFinder(StepName step, std::int32_t workers);

  void add(const TraceRecord& record);
  // After the last record.
  void finish();
  // Errors (bad_input): the trace has no such step.
  Expected<void> check() const;

  Provenance found;
  // By index of the operation: what the rank itself has recorded of its result.
  std::map<std::size_t, TracedUpdate> of_operation;

 private:
  bool shows_step(const TraceRecord& record) const;
  bool is_own(const TraceRecord& record) const;
  void add_of_step(const TraceRecord& record);
  void add_to_operation(const TraceRecord& record);
  void add_served(const TraceRecord& record);

  const StepName step_;
  const std::int32_t workers_;
  const bool serves_;
  KnownSteps steps_;
  std::set<std::size_t> entered_;    // operations whose result is in the model
  std::optional<Step> served_step_;  // the newest gradient in the commits with that of the step
};

}  // namespace grapevine
