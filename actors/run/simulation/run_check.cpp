#include "actors/run/simulation/run_check.hpp"

#include <algorithm>

namespace grapevine {

bool RunCheck::is_missing(const RunResult& result, std::size_t rank) {
  const auto has = [rank](const std::vector<Rank>& ranks) {
    return std::find(ranks.begin(), ranks.end(), static_cast<Rank>(rank)) != ranks.end();
  };
  return has(result.lost) || has(result.vacant);
}

void RunCheck::report(std::string what) {
  if (++count_ <= kMostKept) violations_.push_back(std::move(what));
}

RunChecks::RunChecks(const CheckedRun& run) {
  for (const auto& make : {make_ledger_check, make_mass_check, make_sum_check, make_feedback_check,
                           make_staleness_check, make_version_check, make_liveness_check,
                           make_delivery_check, make_agreement_check})
    checks_.push_back(make(run));
}

void RunChecks::on_sent(Timestamp at, const Envelope& message, std::uint64_t bytes) {
  for (const auto& check : checks_) check->on_sent(at, message, bytes);
}

void RunChecks::on_delivered(Timestamp at, const Envelope& message) {
  for (const auto& check : checks_) check->on_delivered(at, message);
}

void RunChecks::on_lost(Timestamp at, const Envelope& message) {
  for (const auto& check : checks_) check->on_lost(at, message);
}

void RunChecks::on_detached(Timestamp at, Rank rank) {
  for (const auto& check : checks_) check->on_detached(at, rank);
}

void RunChecks::on_returned(Timestamp at, Rank rank) {
  for (const auto& check : checks_) check->on_returned(at, rank);
}

void RunChecks::on_joined(Timestamp at, Rank rank) {
  for (const auto& check : checks_) check->on_joined(at, rank);
}

void RunChecks::on_begin(const FrozenTensor& parameters) {
  for (const auto& check : checks_) check->on_begin(parameters);
}

void RunChecks::on_gradient(Rank rank, Step step, const FrozenTensor& value) {
  for (const auto& check : checks_) check->on_gradient(rank, step, value);
}

void RunChecks::on_records(const std::vector<TraceRecord>& records) {
  for (const auto& check : checks_)
    for (const TraceRecord& record : records) check->on_record(record);
}

void RunChecks::on_end(const RunResult& result) {
  for (const auto& check : checks_) check->on_end(result);
}

std::vector<std::string> RunChecks::violations() const {
  std::vector<std::string> all;
  for (const auto& check : checks_) {
    for (const std::string& violation : check->violations())
      all.push_back(check->name() + ": " + violation);
    const std::uint64_t more = check->violation_count() - check->violations().size();
    if (more > 0) all.push_back(check->name() + ": " + std::to_string(more) + " more");
  }
  return all;
}

}  // namespace grapevine
