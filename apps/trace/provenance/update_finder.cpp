#include "apps/trace/provenance/update_finder.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace grapevine {

void KnownSteps::add(Step step, bool taken) {
  has_wanted_ = has_wanted_ || step == wanted_;
  if (!taken) return;
  first_ = any_ ? std::min(first_, step) : step;
  last_ = any_ ? std::max(last_, step) : step;
  any_ = true;
  if (step < wanted_) below_ = std::max(below_.value_or(step), step);
  if (step > wanted_) above_ = std::min(above_.value_or(step), step);
}

std::string KnownSteps::in_words(const std::string& noun) const {
  if (!any_) return "no " + noun + "s";
  if (first_ == last_) return fmt::format("the {} {}", noun, first_);
  std::string text = fmt::format("the {}s {} to {}", noun, first_, last_);
  if (below_ && above_) text += fmt::format(", and next to this one {} and {}", *below_, *above_);
  return text;
}

TracedUpdate update_of(const TraceRecord& record) {
  TracedUpdate update;
  update.time_ns = record.time_ns;
  update.at = record.rank;
  update.at_step = record.step;
  update.gradient.worker = record.origin;
  update.gradient.step = record.origin_step;
  update.gradient.version = record.version;
  update.bytes = record.bytes;
  if (record.kind != EventKind::committed) update.staleness = record.staleness;
  if (record.peer < 0 || record.peer == record.rank) return update;
  MessageHop hop;
  hop.from = record.peer;
  hop.to = record.rank;
  hop.sequence = record.sequence;
  update.path = PathKind::message;
  update.hops.push_back(hop);
  return update;
}

UpdateFinder::UpdateFinder(StepName step, std::int32_t workers)
    : step_(step), workers_(workers), serves_(step.rank >= workers), steps_(step.step) {
  found.step = step;
}

void UpdateFinder::add(const TraceRecord& record) {
  if (!serves_ && record.rank >= workers_ && record.kind == EventKind::applied)
    return add_served(record);
  if (record.rank != step_.rank) return;
  if (record.kind == EventKind::dropped && record.origin_step == step_.step) found.dropped = true;
  if (!shows_step(record)) return;
  const bool taken =
      serves_ || record.kind == EventKind::produced || record.kind == EventKind::step_done;
  steps_.add(record.step, taken);
  if (record.step != step_.step) return;
  found.taken = found.taken || taken;
  add_of_step(record);
}

// A rank that gives an older model to an operation takes its result later, if at all.
void UpdateFinder::finish() {
  std::vector<TracedOperation> entered;
  std::map<std::size_t, TracedUpdate> of_entered;
  for (std::size_t i = 0; i < found.operations.size(); ++i) {
    if (entered_.count(i) == 0) continue;
    if (const auto own = of_operation.find(i); own != of_operation.end())
      of_entered[entered.size()] = own->second;
    entered.push_back(std::move(found.operations[i]));
  }
  found.operations = std::move(entered);
  of_operation = std::move(of_entered);
}

Expected<void> UpdateFinder::check() const {
  if (steps_.has_wanted()) return {};
  const std::string noun = serves_ ? "version" : "step";
  return bad_input(fmt::format("--why {0}:{1}: the trace has no {2} {1} of rank {0}: it has {3}",
                               step_.rank, step_.step, noun, steps_.in_words(noun)));
}

bool UpdateFinder::shows_step(const TraceRecord& record) const {
  switch (record.kind) {
    case EventKind::asked:
    case EventKind::produced:
    case EventKind::step_done:
      return !serves_;
    case EventKind::committed:
      return is_own(record) || record.operation >= 0;
    case EventKind::applied:
    case EventKind::reduced:
      return true;
    default:
      return false;
  }
}

// A gradient that a server has committed is in the server's model.
bool UpdateFinder::is_own(const TraceRecord& record) const {
  return record.kind == EventKind::committed && record.operation < 0 && record.peer < workers_;
}

void UpdateFinder::add_of_step(const TraceRecord& record) {
  // The server's own record reports the commit of this rank's gradient.
  if (!serves_ && record.kind == EventKind::committed && record.peer >= workers_) return;
  const bool of_message = record.peer >= 0 && record.peer != record.rank;
  switch (record.kind) {
    case EventKind::step_done:
      found.done_ns = record.time_ns;
      return;
    case EventKind::reduced:
      return add_to_operation(record);
    case EventKind::committed:
    case EventKind::applied:
      if (record.operation >= 0 && !of_message) return add_to_operation(record);
      found.updates.push_back(update_of(record));
      return;
    default:
      return;
  }
}

// Operations of several levels may have the same number, but other members.
void UpdateFinder::add_to_operation(const TraceRecord& record) {
  auto& operations = found.operations;
  auto same = std::find_if(operations.begin(), operations.end(), [&](const auto& operation) {
    return operation.number == record.operation &&
           (operation.members.empty() || record.members.empty() ||
            operation.members == record.members);
  });
  if (same == operations.end()) {
    operations.emplace_back();
    same = operations.end() - 1;
    same->number = record.operation;
  }
  if (record.kind == EventKind::reduced) same->members = record.members;
  same->time_ns = std::max(same->time_ns, record.time_ns);
  const auto number = static_cast<std::size_t>(same - operations.begin());
  if (record.kind != EventKind::applied) entered_.insert(number);
  if (record.kind != EventKind::applied) return;
  same->staleness = record.staleness;
  of_operation[number] = update_of(record);
}

// The first commit whose newest gradient is not older than that of the step: a commit may have
// those of several local steps.
void UpdateFinder::add_served(const TraceRecord& record) {
  if (record.origin != step_.rank || record.origin_step < step_.step) return;
  if (served_step_ && record.origin_step > *served_step_) return;
  if (served_step_ && record.origin_step < *served_step_) found.updates.clear();
  served_step_ = record.origin_step;
  found.updates.push_back(update_of(record));
}

}  // namespace grapevine
