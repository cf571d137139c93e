#include "apps/trace/provenance/provenance.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "apps/trace/provenance/path_finder.hpp"
#include "apps/trace/provenance/update_finder.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

// The third pass: how the gradients were computed.
class GradientFinder {
 public:
  explicit GradientFinder(Provenance& found) : found_(found) {
    for (const TracedUpdate& update : found.updates)
      gradients_[{update.gradient.worker, update.gradient.step}] = update.gradient;
  }

  void add(const TraceRecord& record) {
    const bool of_worker = record.kind == EventKind::asked || record.kind == EventKind::data_wait ||
                           record.kind == EventKind::produced;
    if (!of_worker) return;
    const auto found = gradients_.find({record.rank, record.step});
    if (found == gradients_.end()) return;
    TracedGradient& gradient = found->second;
    if (record.kind == EventKind::asked) {
      gradient.asked_ns = record.time_ns;
      gradient.version = record.version;
    } else if (record.kind == EventKind::data_wait) {
      gradient.data_ns = record.duration_ns;
    } else {
      gradient.produced_ns = record.time_ns;
      if (record.duration_ns > 0) gradient.compute_ns = record.duration_ns;
    }
  }

  // The version in a message is the receiver's measure of age: it stays.
  void finish() {
    for (TracedUpdate& update : found_.updates) {
      const Version version = update.gradient.version;
      const auto& found = gradients_.at({update.gradient.worker, update.gradient.step});
      update.gradient = found;
      if (update.path == PathKind::message || !found.asked_ns) update.gradient.version = version;
    }
  }

 private:
  Provenance& found_;
  std::map<std::pair<Rank, Step>, TracedGradient> gradients_;  // by worker and step
};

// A rank records its own gradient, and the model that it entered, beside the operation with it.
void remove_repeated_own(Provenance& found) {
  std::set<std::pair<Rank, Step>> seen;
  for (const TracedUpdate& update : found.updates)
    if (update.path == PathKind::operation)
      seen.insert({update.gradient.worker, update.gradient.step});
  const auto repeated = [&seen](const TracedUpdate& update) {
    return update.path == PathKind::own &&
           !seen.insert({update.gradient.worker, update.gradient.step}).second;
  };
  found.updates.erase(std::remove_if(found.updates.begin(), found.updates.end(), repeated),
                      found.updates.end());
}

template <class Int>
bool parse_whole(const std::string& text, Int& value) {
  const auto number = number_in<Int>(text);
  value = number.value_or(0);
  return number && value >= 0;
}

}  // namespace

Expected<StepName> parse_step_name(const std::string& text) {
  const std::size_t colon = text.find(':');
  StepName name;
  const bool valid = colon != std::string::npos && parse_whole(text.substr(0, colon), name.rank) &&
                     parse_whole(text.substr(colon + 1), name.step);
  if (!valid) return bad_input(fmt::format("--why '{}': expected RANK:STEP, e.g. 2:120", text));
  return name;
}

Expected<Provenance> find_provenance(StepName step, std::int32_t workers, std::int32_t ranks,
                                     const TracePass& pass) {
  if (step.rank >= ranks)
    return bad_input(fmt::format("--why {}:{}: the run has no rank {}: it has the ranks 0 to {}",
                                 step.rank, step.step, step.rank, ranks - 1));
  UpdateFinder updates(step, workers);
  pass([&](const TraceRecord& record) { updates.add(record); });
  updates.finish();
  if (auto checked = updates.check(); !checked) return checked.error();
  Provenance found = std::move(updates.found);
  PathFinder paths(found, workers);
  pass([&](const TraceRecord& record) { paths.add(record); });
  paths.finish(updates.of_operation);
  remove_repeated_own(found);
  GradientFinder gradients(found);
  pass([&](const TraceRecord& record) { gradients.add(record); });
  gradients.finish();
  std::stable_sort(found.updates.begin(), found.updates.end(), [](const auto& a, const auto& b) {
    return std::tie(a.time_ns, a.gradient.worker, a.gradient.step) <
           std::tie(b.time_ns, b.gradient.worker, b.gradient.step);
  });
  return found;
}

}  // namespace grapevine
