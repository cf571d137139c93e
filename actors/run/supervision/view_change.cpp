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

InstallView ViewChange::conclude(bool replicates) {
  stage_ = Stage::none;
  InstallView view;
  view.view = number_;
  view.members = members_;
  double w = 0;
  for (const auto& [rank, closed] : closed_) {
    view.operations = std::max(view.operations, closed.operations);
    w += closed.w;
  }
  view.scale = static_cast<double>(closed_.size()) / w;
  for (const auto& [rank, closed] : closed_) {
    if (replicates && closed.operations < view.operations) {
      view.behind.push_back(rank);
      continue;
    }
    if (view.donor < 0) view.donor = rank;
    view.first_step = std::max(view.first_step, closed.step);
    view.first_epoch = std::max(view.first_epoch, closed.epoch);
  }
  return view;
}

}  // namespace grapevine
