#include "actors/run/supervision/view_change.hpp"

#include <algorithm>
#include <utility>

namespace grapevine {

void ViewChange::begin(std::vector<Rank> members) {
  stage_ = Stage::draining;
  ++number_;
  members_ = std::move(members);
  last_sent_ = -1;
  closed_.clear();
}

bool ViewChange::is_member(Rank rank) const {
  return std::binary_search(members_.begin(), members_.end(), rank);
}

std::int64_t ViewChange::begin_round() {
  traffic_.clear();
  return ++round_;
}

ViewChange::Next ViewChange::add(const Traffic& traffic) {
  if (!draining() || traffic.view != number_ || traffic.round != round_ || !is_member(traffic.rank))
    return Next::wait;
  traffic_[traffic.rank] = traffic;
  if (traffic_.size() < members_.size()) return Next::wait;
  std::int64_t sent = 0, received = 0;
  for (const auto& [rank, answer] : traffic_) {
    sent += answer.sent;
    received += answer.received;
  }
  const bool still = sent == received && sent == last_sent_;
  last_sent_ = sent == received ? sent : -1;
  if (!still) return Next::ask_later;
  stage_ = Stage::closing;
  return Next::close;
}

ViewChange::Next ViewChange::add(const ViewClosed& closed) {
  if (stage_ != Stage::closing || closed.view != number_ || !is_member(closed.rank))
    return Next::wait;
  closed_[closed.rank] = closed;
  return closed_.size() < members_.size() ? Next::wait : Next::install;
}

InstallView ViewChange::conclude(const Models& models, const Horizon& horizon) {
  stage_ = Stage::none;
  InstallView view;
  view.view = number_;
  view.members = members_;
  double w = 0;
  std::int64_t most_taken = 0;
  for (const auto& [rank, closed] : closed_) {
    most_taken = std::max(most_taken, closed.taken);
    view.operations = std::max(view.operations, closed.operations);
    if (closed.operations == ViewClosed::kJoins)
      view.joining.push_back(rank);
    else
      w += closed.w;
  }
  // Ranks that join share the mass of the others, or bring a weight of 1 each.
  const std::size_t sharers = closed_.size() - (models.keeps_mass ? 0 : view.joining.size());
  view.scale = static_cast<double>(sharers) / w;
  Step first_step = 0;
  double first_epoch = 0;
  for (const auto& [rank, closed] : closed_) {
    if (closed.operations == ViewClosed::kJoins) continue;
    if (models.replicates && closed.operations < view.operations) {
      view.behind.push_back(rank);
      continue;
    }
    if (view.donor < 0) view.donor = rank;
    first_step = std::max(first_step, closed.step);
    first_epoch = std::max(first_epoch, closed.epoch);
  }
  view.before = positions_before(view.joining);
  const auto before = static_cast<std::int32_t>(installed_.size());
  const auto now = static_cast<std::int32_t>(members_.size());
  // Those that a slower rank has not reached are left out.
  first_batch_ += most_taken * before;
  view.first_batch = first_batch_;
  view.horizon = horizon.among(before, now, first_step, first_epoch);
  installed_ = members_;
  ++count_;
  return view;
}

// A member of the view before may join, too: it had not received its state yet.
std::vector<std::int32_t> ViewChange::positions_before(const std::vector<Rank>& joining) const {
  std::vector<std::int32_t> positions;
  for (const Rank rank : members_) {
    const auto at = std::lower_bound(installed_.begin(), installed_.end(), rank);
    const bool known = at != installed_.end() && *at == rank &&
                       std::find(joining.begin(), joining.end(), rank) == joining.end();
    positions.push_back(known ? static_cast<std::int32_t>(at - installed_.begin()) : -1);
  }
  return positions;
}

}  // namespace grapevine
