#include "actors/run/supervision/wiring/wiring_change.hpp"

#include <utility>

#include "messages/check.hpp"

namespace grapevine {

void WiringChange::ask(LiveSettings settings, LiveSettings changed, std::set<Rank> ranks,
                       bool of_nodes) {
  GRAPEVINE_CHECK(!in_progress(), "two changes of the wiring at once");
  stage_ = Stage::asked;
  ++number_;
  settings_ = std::move(settings);
  changed_ = std::move(changed);
  missing_ = std::move(ranks);
  why_.clear();
  of_nodes_ = of_nodes;
}

void WiringChange::begin(LiveSettings settings, LiveSettings changed) {
  ask(std::move(settings), std::move(changed), {});
  stage_ = Stage::draining;
}

WiringChange::Next WiringChange::add(const SettingsChecked& checked) {
  if (!asks() || checked.number != number_ || missing_.erase(checked.rank) == 0) return Next::wait;
  if (!checked.why.empty()) {
    why_ = checked.why;
    stage_ = Stage::none;
    return Next::refuse;
  }
  if (!missing_.empty()) return Next::wait;
  stage_ = Stage::draining;
  return Next::begin;
}

ViewKind WiringChange::install(bool behind, const std::vector<Rank>& members) {
  switch (stage_) {
    case Stage::none:
    case Stage::asked:
      return ViewKind::members;
    case Stage::draining:
      // The values that a rank keeps enter its own model, which has to be the newest.
      if (behind || std::exchange(of_nodes_, false)) return ViewKind::members;
      stage_ = Stage::merging;
      [[fallthrough]];
    case Stage::merging:
      missing_ = {members.begin(), members.end()};
      return ViewKind::common_model;
    case Stage::beginning:
      stage_ = Stage::none;
      return ViewKind::new_wiring;
  }
  return ViewKind::members;
}

bool WiringChange::add(const ModelShared& shared, std::int64_t newest) {
  if (stage_ != Stage::merging || shared.view != newest || missing_.erase(shared.rank) == 0)
    return false;
  if (!missing_.empty()) return false;
  stage_ = Stage::beginning;
  return true;
}

}  // namespace grapevine
