#include "actors/run/supervision/view_change.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

ViewChange::Models ViewChange::Models::of(const Plan& plan) {
  const RoleType& role = *plan.role;
  return {role.replicates, role.keeps_mass(plan), grapevine::node_size(plan), role.plans_each_rank,
          role.changes_by_mean};
}

ViewChange::Models ViewChange::Models::common() {
  Models models;
  models.replicates = true;
  models.trains = false;
  return models;
}

void ViewChange::begin(std::vector<Rank> members, const std::vector<Rank>& servers) {
  stage_ = Stage::draining;
  ++number_;
  members_ = std::move(members);
  const std::vector<Rank>& before = installed_.servers;
  servers_.clear();
  std::set_union(before.begin(), before.end(), servers.begin(), servers.end(),
                 std::back_inserter(servers_));
  servers_epoch_ = 0;
  new_servers_.clear();
  last_sent_ = -1;
  first_round_ = round_;
  answered_.clear();
  closed_.clear();
}

void ViewChange::set_servers(std::vector<Rank> servers) {
  installed_.servers = servers;
  servers_ = std::move(servers);
}

bool ViewChange::takes_part(Rank rank) const {
  return std::binary_search(members_.begin(), members_.end(), rank) ||
         std::binary_search(servers_.begin(), servers_.end(), rank);
}

bool ViewChange::loses_members() const {
  const std::vector<Rank>& before = installed_.members;
  return !std::includes(members_.begin(), members_.end(), before.begin(), before.end());
}

bool ViewChange::is_arriving(Rank rank) const {
  const std::vector<Rank>& before = installed_.members;
  return in_progress() && std::binary_search(members_.begin(), members_.end(), rank) &&
         !std::binary_search(before.begin(), before.end(), rank);
}

std::vector<Rank> ViewChange::arriving() const {
  std::vector<Rank> ranks;
  const auto add = [&ranks](const std::vector<Rank>& now, const std::vector<Rank>& before) {
    std::set_difference(now.begin(), now.end(), before.begin(), before.end(),
                        std::back_inserter(ranks));
  };
  add(members_, installed_.members);
  add(servers_, installed_.servers);
  return ranks;
}

std::vector<Rank> ViewChange::participants() const {
  std::vector<Rank> ranks = members_;
  ranks.insert(ranks.end(), servers_.begin(), servers_.end());
  return ranks;
}

std::int64_t ViewChange::begin_round() {
  traffic_.clear();
  return ++round_;
}

ViewChange::Next ViewChange::add(const Traffic& traffic) {
  if (!draining() || traffic.view != number_ || traffic.round != round_ ||
      !takes_part(traffic.rank))
    return Next::wait;
  traffic_[traffic.rank] = traffic;
  answered_.insert(traffic.rank);
  if (traffic_.size() < count_participants()) return Next::wait;
  std::int64_t sent = 0, received = 0;
  for (const auto& [rank, answer] : traffic_) {
    sent += answer.sent;
    received += answer.received;
  }
  const bool still = sent == received && sent == last_sent_;
  last_sent_ = sent == received ? sent : -1;
  if (!still) return last_sent_ < 0 ? Next::ask_later : Next::ask_again;
  stage_ = Stage::closing;
  return Next::close;
}

ViewChange::Next ViewChange::add(const ViewClosed& closed) {
  if (stage_ != Stage::closing || closed.view != number_ || !takes_part(closed.rank))
    return Next::wait;
  closed_[closed.rank] = closed;
  if (closed.operations != ViewClosed::kJoins) without_state_.erase(closed.rank);
  if (closed_.size() < count_participants()) return Next::wait;
  for (const Rank server : servers_) {  // they keep what they have
    servers_epoch_ = std::max(servers_epoch_, closed_[server].epoch);
    if (closed_[server].operations == ViewClosed::kJoins) new_servers_.push_back(server);
    closed_.erase(server);
  }
  return Next::install;
}

std::vector<Rank> ViewChange::unanswered() const {
  std::vector<Rank> ranks;
  if (!in_progress()) return ranks;
  for (const Rank rank : participants())
    if ((draining() ? answered_.count(rank) : closed_.count(rank)) == 0) ranks.push_back(rank);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

bool ViewChange::has_state(Rank rank) const {
  if (const auto closed = closed_.find(rank); in_progress() && closed != closed_.end())
    return closed->second.operations >= 0;
  const std::vector<Rank> exchanging = exchanging_of(installed_.members, installed_.heads);
  return std::binary_search(exchanging.begin(), exchanging.end(), rank) &&
         without_state_.count(rank) == 0;
}

bool ViewChange::has_donor(const std::vector<Rank>& but) const {
  const std::vector<Rank>& ranks = members();
  return std::any_of(ranks.begin(), ranks.end(), [&](Rank rank) {
    return std::find(but.begin(), but.end(), rank) == but.end() && has_state(rank);
  });
}

NodeChange ViewChange::changed_nodes(const Models& models) const {
  std::vector<Rank> joining;
  for (const auto& [rank, closed] : closed_)
    if (closed.operations == ViewClosed::kJoins) joining.push_back(rank);
  if (models.node_size > 1)
    return change_nodes(models.node_size, members_, installed_.heads, joining);
  return {{}, std::move(joining)};
}

InstallView ViewChange::conclude(const Models& models, const Horizon& horizon, double least_epoch,
                                 const std::map<Rank, Step>& reported) {
  stage_ = Stage::none;
  InstallView view;
  view.view = number_;
  view.members = members_;
  NodeChange nodes = changed_nodes(models);
  const Closed exchanging = add_closed(view);
  if (!models.changes_by_mean) view.scale = scale_of(exchanging, models, nodes);
  const Closed ahead = split_ahead(view, exchanging, models);
  view.joining = std::move(nodes.joining);
  without_state_ = {view.joining.begin(), view.joining.end()};
  view.heads = std::move(nodes.heads);
  view.first_batch = first_batch_ = batches_.end_view(first_batch_, batch_shares());
  taken_.clear();
  Clock clock = clock_of(ahead, models, horizon, reported);
  clock.epoch = std::max(clock.epoch, least_epoch);
  view.horizon = horizon_among(horizon, clock);
  epochs_done_ = clock.epoch;
  installed_.members = members_;
  installed_.heads = view.heads;
  installed_number_ = number_;
  closed_.clear();
  ++count_;
  return view;
}

ClosedCounts ViewChange::closed_counts(const Models& models) const {
  ClosedCounts counts;
  if (!models.changes_by_mean) return counts;
  for (const auto& [rank, closed] : closed_)
    if (!closed.counts.empty()) counts[rank] = closed.counts;
  return counts;
}

// Adds the operations of the members to `view`. Returns those that exchanged so far.
ViewChange::Closed ViewChange::add_closed(InstallView& view) const {
  Closed exchanging;
  for (const auto& [rank, closed] : closed_) {
    if (closed.operations < 0) continue;
    view.operations = std::max(view.operations, closed.operations);
    exchanging.push_back(&closed);
  }
  return exchanging;
}

// Ranks that join share the mass of the others, or bring a weight of 1 each.
double ViewChange::scale_of(const Closed& exchanging, const Models& models,
                            const NodeChange& nodes) const {
  double w = 0;
  for (const ViewClosed* closed : exchanging) w += closed->w;
  const std::size_t joined = exchanging_of(nodes.joining, nodes.heads).size();
  const std::size_t sharers = exchanging.size() + (models.keeps_mass ? joined : 0);
  return static_cast<double>(sharers) / w;
}

// Returns those that have the result of the last operation. The first of them is the donor; the
// others are behind, where they are to have the same model.
ViewChange::Closed ViewChange::split_ahead(InstallView& view, const Closed& exchanging,
                                           const Models& models) const {
  Closed ahead;
  for (const ViewClosed* closed : exchanging) {
    if (models.replicates && closed->operations < view.operations) {
      view.behind.push_back(closed->rank);
      continue;
    }
    if (view.donor < 0) view.donor = closed->rank;
    ahead.push_back(closed);
  }
  return ahead;
}

void ViewChange::on_taken(Rank rank, std::int64_t view, std::int64_t batches) {
  if (view == installed_number_) taken_[rank] = std::max(taken_[rank], batches);
}

void ViewChange::end_training() {
  batches_at_end_ = batches_;
  batches_at_end_->end_training(first_batch_, batch_shares());
}

BatchesOfLost ViewChange::batches_of(const std::set<Rank>& lost) const {
  BatchesOfLost batches;
  batches.ahead = batches_.ahead();
  for (const Rank rank : installed_.members)
    if (const auto taken = taken_.find(rank); taken != taken_.end() && lost.count(rank) > 0)
      batches.taken.insert(*taken);
  return batches;
}

// By position in the view before. Those that remain have closed, with all that they have taken; at
// the end of training they have reported it. A member that joins had been lost before the
// checkpoint that this run continues, or has taken nothing in that view.
std::vector<BatchAccount::Share> ViewChange::batch_shares() const {
  std::vector<BatchAccount::Share> shares;
  for (const Rank rank : installed_.members) {
    const auto closed = closed_.find(rank);
    const auto reported = taken_.find(rank);
    BatchAccount::Share share;
    share.remains = closed != closed_.end() && closed->second.operations != ViewClosed::kJoins;
    if (share.remains)
      share.taken = closed->second.taken;
    else if (reported != taken_.end())
      share.taken = reported->second;
    shares.push_back(share);
  }
  return shares;
}

// `horizon`, of the members before, from `clock` on among those of the view to come.
Horizon ViewChange::horizon_among(const Horizon& horizon, const Clock& clock) const {
  const auto before = static_cast<std::int32_t>(installed_.members.size());
  const auto now = static_cast<std::int32_t>(members_.size());
  const double per_epoch = horizon.steps_per_epoch * before / now;
  const double ahead_of_mean = static_cast<double>(clock.step) - clock.mean_step;
  Horizon among = horizon.among(before, now, clock.step, clock.epoch + ahead_of_mean / per_epoch);
  // Each member has a step to take, if any has: with the last one goes an exchange.
  const bool ends = clock.epoch >= among.planned_epochs;
  if (horizon.by_samples) among.steps = std::max(among.steps, clock.step + (ends ? 0 : 1));
  return among;
}

// The view begins at the step of the member that is furthest on: up to that one the members do not
// exchange what they have exchanged. Where training ends after a number of samples, and ranks have
// models of their own, the epochs are those of the mean, of lost ranks as well, so that what slow
// ranks have not done is left; else those of that member.
ViewChange::Clock ViewChange::clock_of(const Closed& ahead, const Models& models,
                                       const Horizon& horizon,
                                       const std::map<Rank, Step>& reported) const {
  if (!models.trains) {
    const Step step = horizon.first_step;
    return {step, static_cast<double>(step), horizon.first_epoch};
  }
  // Where fast ranks take over from slow ones the clock counts, not the steps of a rank.
  if (!models.plans_each_rank) {
    const double epoch = epoch_of_all(ahead, horizon);
    const Step step = horizon.step_at(epoch);
    return {step, static_cast<double>(step), epoch};
  }
  const ViewClosed& first = *ahead.front();
  Step most = first.step;
  double most_epochs = first.epoch;
  double steps = 0, epochs = 0;  // more than those of the first one
  for (const ViewClosed* closed : ahead) {
    most = std::max(most, closed->step);
    most_epochs = std::max(most_epochs, closed->epoch);
    steps += static_cast<double>(closed->step - first.step);
    epochs += closed->epoch - first.epoch;
  }
  const bool by_mean = horizon.by_samples && !models.replicates;
  if (!by_mean) return {most, static_cast<double>(most), most_epochs};
  const auto count = static_cast<double>(ahead.size());
  const double mean_step = static_cast<double>(first.step) + steps / count;
  std::size_t lost = 0;
  const std::vector<Rank>& exchanged =
      installed_.heads.empty() ? installed_.members : installed_.heads;
  for (const Rank rank : exchanged) {
    const auto step = reported.find(rank);
    const bool remains = std::binary_search(members_.begin(), members_.end(), rank);
    if (remains || step == reported.end()) continue;
    epochs += horizon.epoch_of(step->second + 1) - first.epoch;
    ++lost;
  }
  return {most, mean_step, first.epoch + epochs / static_cast<double>(ahead.size() + lost)};
}

// Roles whose clock counts the gradients of all ranks: each rank may be the only one that knows its
// last gradients, and those of lost ranks are not all known.
double ViewChange::epoch_of_all(const Closed& ahead, const Horizon& horizon) const {
  const auto further = [](const ViewClosed* a, const ViewClosed* b) { return a->epoch < b->epoch; };
  const ViewClosed& best = **std::max_element(ahead.begin(), ahead.end(), further);
  // A role that has not counted yet has the epoch of the role before.
  const double known = std::max(best.epoch, horizon.first_epoch);
  std::int64_t all = 0, of_lost = 0;
  for (const ViewClosed* closed : ahead) {
    if (closed->counts.size() != 2) return known;
    all += closed->taken;
    of_lost = std::max(of_lost, closed->counts[1]);
  }
  const std::int64_t unknown = std::max<std::int64_t>(0, all + of_lost - best.counts[0]);
  const auto before = static_cast<double>(installed_.members.size());
  return known + static_cast<double>(unknown) / (horizon.steps_per_epoch * before);
}

}  // namespace grapevine
