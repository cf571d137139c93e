// RoleWorld: roles of all ranks in one thread, without actors. Messages and gradients arrive in a
// seeded random order that keeps FIFO per ordered pair; everything can be looked at between two
// events.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "algorithms/parts/server_rules.hpp"
#include "algorithms/roles/gossip/gossip.hpp"
#include "algorithms/roles/make_role.hpp"
#include "algorithms/roles/member_role.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "messages/random.hpp"

namespace grapevine::sim {

// The gradient that a rank's worker would return at z for a step.
using GradientOf = std::function<at::Tensor(Rank, Step, const at::Tensor& z)>;

struct WorldConfig {
  std::int32_t ranks = 4;  // that train; the plan's servers come after them
  std::int64_t dimension = 3;
  Plan plan;
  Horizon horizon;
  double lr = 0;
  std::string lr_schedule = "constant";
  OptimizerConfig optimizer;
  std::uint64_t seed = 1;
  std::map<Rank, double> slowness;  // chance that a ready gradient is held back, by rank
};

// What becomes of the messages of a rank that are on their way when it dies.
enum class OnTheWire { delivered, lost };

class RoleWorld {
 public:
  RoleWorld(const WorldConfig& config, GradientOf gradient_of)
      : config_(config), gradient_of_(std::move(gradient_of)), rng_(config.seed) {
    LrConfig rate;
    rate.lr = config.lr;
    rate.spec = config.lr_schedule;
    auto parts = make_parts(config.plan, config.horizon, *LrSchedule::make(rate), config.optimizer,
                            config.ranks);
    GRAPEVINE_CHECK(parts.ok(), parts.error().message);
    parts_ = parts_of_start_ = *parts;
    for (Rank rank = 0; rank < everybody(); ++rank) ranks_.emplace_back(*this, rank);
    members_ = all_ranks(config.ranks);
    if (changes_members(config.plan) && node_size(config.plan) > 1)
      heads_ = first_of_each_node(members_, config.plan.hierarchy);
  }

  // Before start(): the parameters of a rank,
  void set_x(Rank rank, const at::Tensor& x) {
    Seat& seat = at(rank);
    seat.model.x = FrozenTensor::copy_of(x);
    // Groups have begun with the model that the rank had.
    if (parts_->plan.role->changes_by_mean)
      seat.role = make_role(parts_, rank, everybody(), seat.model);
  }
  // and those of all, servers too.
  void begin_at(const at::Tensor& x) {
    for (Rank rank = 0; rank < config_.ranks; ++rank) set_x(rank, x);
    for (const Rank server : servers())
      at(server).model.x = part_of(FrozenTensor::copy_of(x), slice(server));
  }

  void start() {
    for (Seat& seat : ranks_) seat.role->on_start(seat);
  }

  // One event: a message or a gradient arrives. False where nothing is left to happen.
  bool step() {
    choices_.clear();
    for (auto& [pair, queue] : wires_)
      if (has_arrivals(pair, queue)) choices_.push_back({pair, nullptr});
    bool held_back = false;
    for (Seat& seat : ranks_) {
      if (!seat.request || !seat.up || stalled_.count(seat.number) > 0) continue;
      const auto slow = config_.slowness.find(seat.number);
      if (slow != config_.slowness.end() && chance() < slow->second)
        held_back = true;
      else
        choices_.push_back({{}, &seat});
    }
    // Timers fire when they are due; where nothing else is left to happen, time jumps to the next.
    const bool due = !timers_.empty() && timers_.begin()->first <= clock_;
    if (!due && choices_.empty() && (held_back || timers_.empty())) return held_back;
    if (due || choices_.empty())
      fire_timer();
    else
      happen(choices_[rng_() % choices_.size()]);
    ++events_;
    ++clock_;
    return true;
  }

  // Whether nothing happens before a timer is due.
  bool waits_for_a_timer() const {
    for (const auto& [pair, queue] : wires_)
      if (has_arrivals(pair, queue)) return false;
    for (const Seat& seat : ranks_)
      if (seat.request && seat.up && stalled_.count(seat.number) == 0) return false;
    return !timers_.empty();
  }

  // To the end; REQUIRES that it comes within `limit` events. Calls `check` after each.
  void run(
      const std::function<void()>& check = [] {}, std::int64_t limit = 1'000'000) {
    while (step()) {
      check();
      GRAPEVINE_CHECK(events_ < limit, "the world does not come to an end");
    }
  }

  // On to that many events since the beginning, or to the end.
  void run_until(std::int64_t events) {
    while (events_ < events && step()) {
    }
  }

  // From here on nothing reaches the rank, and its worker does not answer; until it goes on.
  void stall(Rank rank) { stalled_.insert(rank); }
  void go_on(Rank rank) { stalled_.erase(rank); }
  // Sees every message when it is sent, and when it is delivered.
  using Spy = std::function<void(const Envelope&, bool delivered)>;
  void watch(Spy spy) { spy_ = std::move(spy); }
  // Changes messages when they are delivered, as somebody who speaks wrongly would.
  void tamper(std::function<void(Envelope&)> change) { change_ = std::move(change); }
  // Asked for each message when its turn comes: true loses it on the wire. Shares that it loses are
  // in no sum of this world; running sums are.
  void lose_where(std::function<bool(const Envelope&)> loses) { loses_ = std::move(loses); }
  const Role& role(Rank rank) const { return *ranks_[static_cast<std::size_t>(rank)].role; }

  // The rank is gone with everything it holds; messages to it are lost. Each other rank hears of it
  // at a moment of its own, by news that come after the dead rank's messages to it: before them
  // what is on the wire is delivered or lost, after them nothing comes from it any more.
  void kill(Rank dead, OnTheWire fate = OnTheWire::delivered) {
    at(dead).up = false;
    const auto lose_queue = [this](Pair pair) {
      for (const Envelope& envelope : wires_[pair]) lose(envelope);
      wires_[pair].clear();
    };
    for (const Seat& seat : ranks_) {
      lose_queue({seat.number, dead});
      news_.erase({seat.number, dead});
      if (fate == OnTheWire::lost) lose_queue({dead, seat.number});
      if (!seat.up) continue;
      wires_[{dead, seat.number}];  // on which the news travel
      news_.insert({dead, seat.number});
    }
    lose(at(dead).model.w, at(dead).model.x);
    if (const StateDict state = at(dead).role->save(); state.entries().count("given.x") > 0)
      lose(-*state.number("given.w"), FrozenTensor::copy_of(-*state.tensor("given.x")));
    for (const auto& [key, share] : at(dead).arrived) lose(share.w, share.x);
    const OwedMass owed = owed_by(at(dead));
    lose(owed.w, FrozenTensor::copy_of(owed.x));
  }

  // From here on servers hold for a change when they hear of a death: their roles are not told.
  void let_servers_hold_first() { servers_hold_first_ = true; }

  // The ranks that are up continue among themselves and with `joining`, which are not: everything
  // that is on the wire arrives, and, where no member is lost, the gradients that are computed;
  // then each role is replaced by one among them, as the actors do it. `between` sees their models
  // before they go on.
  void change_members(
      const std::vector<Rank>& joining = {}, const std::function<void()>& between = [] {}) {
    if (parts_->plan.role->changes_by_mean)
      return change_by_mean(Plan(parts_->plan), joining, between);
    change_roles(joining);
    between();
    for (const Rank rank : members_and_servers()) at(rank).role->on_start(at(rank));
  }

  // The ranks that are up continue with another wiring, as the actors do it: between the two all
  // take the mean of their models. `between` sees the models that it is the mean of.
  void change_wiring(
      const Plan& plan, const std::function<void()>& between = [] {}) {
    change_by_mean(plan, {}, between);
  }

 private:
  using Pair = std::pair<Rank, Rank>;
  struct Seat;

  void change_by_mean(const Plan& plan, const std::vector<Rank>& joining,
                      const std::function<void()>& between) {
    const auto before = static_cast<std::int32_t>(members_.size());
    if (parts_->plan.role->changes_by_mean) {
      resolve_roles();
      for (const Rank rank : joining) members_.push_back(rank);
      std::sort(members_.begin(), members_.end());
    } else {
      change_roles(joining);
      // Ranks of nodes learn from what their heads ask for next whether their gradients count.
      if (!heads_.empty()) {
        for (const Rank rank : members_) at(rank).role->on_start(at(rank));
        change_roles({});
      }
      heads_.clear();
    }
    for (const Rank rank : members_and_servers()) {
      Seat& seat = at(rank);
      if (contains(joining, rank)) {
        begin_with_the_mean(seat);
        continue;
      }
      const std::size_t seen = seat.log.size();
      seat.role->flush(seat);
      note_folds(seat, seen);
      if (rank >= config_.ranks) seat.model.x = among_zeros(seat.model.x, slice(rank), dimension());
      seat.role = make_common_model({members_, {}, servers()}, rank, seat.model,
                                    {seat.role->mean_weight(), seat.role->optimizer_state()});
    }
    between();
    for (const Rank rank : members_and_servers()) at(rank).role->on_start(at(rank));
    while (deliver_any()) {
    }
    begin_wiring(plan, before);
  }

  // A rank that joins gives nothing to the mean.
  void begin_with_the_mean(Seat& seat) {
    revive(seat);
    seat.request.reset();
    seat.is_finished = false;
    seat.model = {};
    seat.model.x = FrozenTensor::freeze(zeros());
    const auto role = make_role(parts_of_start_, seat.number, everybody(), seat.model);
    seat.role = make_common_model({members_, {}, servers()}, seat.number, seat.model,
                                  {0, at::zeros_like(role->optimizer_state()), false});
  }

  // Every message arrives, and the gradient of each rank that computes one where no member is lost;
  // the news of deaths are known.
  void come_to_rest() {
    const bool ends =
        std::all_of(members_.begin(), members_.end(), [this](Rank rank) { return at(rank).up; });
    for (Seat& seat : ranks_) seat.ends_gradient = ends && seat.up && seat.request;
    for (Seat& seat : ranks_) seat.holds = true;
    for (const Rank server : servers())
      for (Rank dead = 0; dead < config_.ranks; ++dead)
        if (!servers_hold_first_ && news_.count({dead, server}) > 0) tell_of_death({dead, server});
    news_.clear();
    timers_.clear();
    while (deliver_any(true)) {
    }
    for (Seat& seat : ranks_) {
      seat.request.reset();  // the role after this one asks again
      seat.holds = false;
    }
  }

  // Of a role that is made of others.
  void resolve_roles() {
    come_to_rest();
    ClosedCounts counts;
    members_.erase(std::remove_if(members_.begin(), members_.end(),
                                  [this](Rank rank) { return !at(rank).up; }),
                   members_.end());
    for (const Rank rank : members_) {
      const std::size_t seen = at(rank).log.size();
      at(rank).role->close(at(rank));
      note_folds(at(rank), seen);
      at(rank).arrived.clear();
      counts[rank] = at(rank).role->counts();
    }
    for (const Rank rank : members_) {
      const std::size_t seen = at(rank).log.size();
      at(rank).role->resolve_open(at(rank), counts);
      note_folds(at(rank), seen);
      at(rank).request.reset();
    }
  }

  void change_roles(const std::vector<Rank>& joining) {
    come_to_rest();
    std::vector<Rank> remaining;
    for (Seat& seat : ranks_)
      if (seat.up && seat.number < config_.ranks) remaining.push_back(seat.number);
    for (const Rank server : servers()) at(server).role->close(at(server));
    const RoleType& role = *parts_->plan.role;
    std::map<Rank, std::int64_t> operations;
    std::int64_t most = 0;
    for (const Rank rank : remaining) {
      const std::size_t seen = at(rank).log.size();
      operations[rank] = at(rank).role->close(at(rank));
      most = std::max(most, operations[rank]);
      note_folds(at(rank), seen);
      at(rank).arrived.clear();  // what is not folded was taken back by its sender
    }
    std::vector<Rank> members = remaining;
    members.insert(members.end(), joining.begin(), joining.end());
    std::sort(members.begin(), members.end());
    NodeChange nodes{{}, joining};
    if (!heads_.empty()) nodes = change_nodes(parts_->plan.hierarchy, members, heads_, joining);
    Seat* donor = nullptr;
    Step first_step = 0;
    double first_epoch = 0;
    for (const Rank rank : remaining) {
      Seat& seat = at(rank);
      const std::size_t seen = seat.log.size();
      if (contains(nodes.joining, rank)) {
        seat.role->forget(seat);
        note_folds(seat, seen);
        continue;
      }
      const bool follows = operations[rank] == Role::kFollows;
      const bool behind = !follows && role.replicates && operations[rank] < most;
      behind ? seat.role->count_as_done(seat) : seat.role->take_back(seat, most);
      note_folds(seat, seen);
      if (follows) continue;
      if (!behind && donor == nullptr) donor = &seat;
      if (!behind) first_step = std::max(first_step, seat.model.step);
      if (!behind) first_epoch = std::max(first_epoch, seat.model.epoch);
    }
    if (!role.plans_each_rank) first_step = parts_->horizon.step_at(first_epoch);
    const auto joined = static_cast<double>(exchanging_of(nodes.joining, nodes.heads).size());
    if (role.keeps_mass(parts_->plan)) share_mass(donor->model, 1 + joined);
    const ModelState model_ahead = donor->model;
    const StateDict ahead = donor->role->save_shared(), joiner = donor->role->save_joiner();
    change_parts(members, nodes, first_step, first_epoch);
    for (const Rank rank : members) {
      Seat& seat = at(rank);
      const bool joins = contains(nodes.joining, rank);
      const bool follows = !heads_.empty() && !contains(heads_, rank);
      const bool behind = !joins && !follows && role.replicates && operations[rank] < most;
      const StateDict own = joins ? joiner : seat.role->save_own();
      const StateDict shared = behind || joins ? ahead : seat.role->save_shared();
      if (contains(joining, rank)) revive(seat);
      if (joins) take_model(seat, model_ahead, follows);
      if (behind) seat.model.x = model_ahead.x;
      if (behind) seat.model.w = model_ahead.w;
      seat.role = make_member_role(parts_, {members, heads_, servers()}, rank, seat.model);
      const auto loaded =
          joins ? seat.role->load_joined(shared, own) : seat.role->load_kept(shared, own);
      GRAPEVINE_CHECK(loaded.ok(), loaded.error().message);
      seat.request.reset();
      caught_up_ += behind;
      for (const Rank other : members) seat.members.alive[static_cast<std::size_t>(other)] = true;
    }
    for (const Rank server : servers()) change_server(server);
  }

  void change_server(Rank server) {
    Seat& seat = at(server);
    const StateDict shared = seat.role->save_shared(), own = seat.role->save_own();
    seat.role = make_member_role(parts_, {members_, {}, servers()}, seat.number, seat.model);
    const auto loaded = seat.role->load_kept(shared, own);
    GRAPEVINE_CHECK(loaded.ok(), loaded.error().message);
    seat.is_finished = false;
    for (const Rank other : members_) seat.members.alive[static_cast<std::size_t>(other)] = true;
  }

  // All members have the common model: they begin at one step, with as much left as before.
  void begin_wiring(const Plan& plan, std::int32_t members_before) {
    Step step = 0;
    double epoch = 0;
    for (const Rank rank : members_) {
      GRAPEVINE_CHECK(at(rank).is_finished, "rank ", rank, " has no common model");
      at(rank).is_finished = false;
      step = std::max(step, at(rank).model.step);
      epoch = std::max(epoch, at(rank).model.epoch);
    }
    const auto size = static_cast<std::int32_t>(members_.size());
    const Horizon horizon =
        parts_->horizon.among(members_before, size, step, epoch).from(step, epoch);
    auto parts =
        plan.role->changes_by_mean
            ? make_parts_of_remaining(plan, horizon, parts_->lr, parts_->optimizer, members_, {})
            : make_parts(plan, horizon, parts_->lr, parts_->optimizer, size);
    GRAPEVINE_CHECK(parts.ok(), parts.error().message);
    for (const Rank server : servers()) at(server).up = false;
    parts_ = *parts;
    if (node_size(plan) > 1) heads_ = first_of_each_node(members_, plan.hierarchy);
    const ModelState common = at(members_.front()).model;
    for (const Rank server : servers()) {
      if (server >= static_cast<Rank>(ranks_.size())) ranks_.emplace_back(*this, server);
      at(server).up = true;
      at(server).is_finished = false;
      at(server).model = common;
      at(server).model.x = part_of(common.x, slice(server));
    }
    for (Seat& seat : ranks_) seat.members.alive.assign(ranks_.size(), true);
    for (const Rank rank : members_and_servers()) {
      Seat& seat = at(rank);
      seat.model.step = step;
      seat.model.epoch = epoch;
      const at::Tensor optimizer = seat.role->optimizer_state();
      seat.role = make_member_role(parts_, {members_, heads_, servers()}, rank, seat.model);
      seat.role->take_over(optimizer);
    }
    for (const Rank rank : members_and_servers()) at(rank).role->on_start(at(rank));
  }

  Slice slice(Rank server) const {
    return slice_of(dimension(), parts_->plan.servers, server - config_.ranks);
  }

 public:
  // How often a rank took the model of another when members changed.
  std::int64_t caught_up() const { return caught_up_; }
  const std::vector<Rank>& members() const { return members_; }
  // And the servers of the present wiring.
  std::vector<Rank> members_and_servers() const {
    std::vector<Rank> ranks = members_;
    for (const Rank server : servers()) ranks.push_back(server);
    return ranks;
  }
  // Of the nodes of a hierarchy.
  const std::vector<Rank>& heads() const { return heads_; }

  // Whether the news of a death have come to `told`.
  bool has_heard(Rank told, Rank dead) const {
    const Seat& seat = ranks_[static_cast<std::size_t>(told)];
    return !seat.members.alive[static_cast<std::size_t>(dead)];
  }

  // Replaces every role by a fresh one that loads what the old one saved; messages on the wire
  // stay, timers are gone.
  void save_and_load() {
    timers_.clear();
    for (Seat& seat : ranks_) {
      const StateDict state = seat.role->save();
      const FrozenTensor x = seat.model.x;  // a server would cut it to its slice again
      if (seat.number >= config_.ranks) seat.model.x = FrozenTensor::freeze(zeros());
      seat.role = make_role(parts_, seat.number, everybody(), seat.model);
      seat.model.x = x;
      seat.model.lr = 0;  // no checkpoint has it
      const auto loaded = seat.role->load(state);
      GRAPEVINE_CHECK(loaded.ok(), loaded.error().message);
    }
    for (Seat& seat : ranks_) {
      const std::size_t left = seat.request ? seat.left : std::numeric_limits<std::size_t>::max();
      seat.request.reset();  // asked for again
      if (seat.up && !seat.is_finished) seat.role->on_start(seat);
      // Parts that were given come once more, in no time.
      while (seat.request && seat.left > left) give_part(seat);
    }
  }

  // In the place of start(): the same ranks go on from where those of `before` came to their end.
  void resume(const RoleWorld& before) {
    for (Seat& seat : ranks_) {
      const Seat& old = before.ranks_[static_cast<std::size_t>(seat.number)];
      seat.model = old.model;
      seat.model.lr = 0;  // no checkpoint has it
      seat.own_rng = old.own_rng;
      const auto loaded = seat.role->load(old.role->save());
      GRAPEVINE_CHECK(loaded.ok(), loaded.error().message);
    }
    start();
  }

  // The ranks continue to another number of steps from this moment, whether they have ended or not,
  // as they do from a checkpoint: messages on the wire stay, timers are gone. REQUIRES: no level
  // where members have changed.
  void continue_to(Step steps) {
    auto longer = std::make_shared<SharedParts>(*parts_);
    longer->horizon.steps = steps;
    if (parts_->began_together()) {
      auto made =
          make_parts(config_.plan, longer->horizon, parts_->lr, parts_->optimizer, config_.ranks);
      GRAPEVINE_CHECK(made.ok(), made.error().message);
      parts_ = *made;
    } else {
      longer->exchanges = ExchangeSteps(config_.plan.local.steps, longer->horizon, parts_->lr);
      parts_ = longer;
    }
    timers_.clear();
    for (const Rank rank : members_and_servers()) {
      Seat& seat = at(rank);
      const StateDict state = seat.role->save();
      const FrozenTensor x = seat.model.x;
      if (rank >= config_.ranks) seat.model.x = FrozenTensor::freeze(zeros());
      seat.role = parts_->began_together()
                      ? make_role(parts_, rank, everybody(), seat.model)
                      : make_member_role(parts_, {members_, heads_, servers()}, rank, seat.model);
      seat.model.x = x;
      const auto loaded = seat.role->load(state);
      GRAPEVINE_CHECK(loaded.ok(), loaded.error().message);
      seat.request.reset();
      seat.is_finished = false;
    }
    for (const Rank rank : members_and_servers())
      if (at(rank).up) at(rank).role->on_start(at(rank));
  }

  // Sums over ranks that are up and over what is on the wire or has arrived, unfolded: shares, and
  // what the askers of bilateral exchanges and local steps that hide a round are still to give up.
  // With running sums: and over what was given on an edge and not folded, lost messages included.
  double total_w() const {
    double w = 0;
    for (const Seat& seat : ranks_)
      if (seat.up) w += seat.model.w;
    each_share([&](const Share& share) { w += share.w; });
    each_given([&](const StateDict& state) { w -= *state.number("given.w"); });
    for (const Seat& seat : ranks_)
      if (seat.up) w += owed_by(seat).w;
    return w;
  }
  at::Tensor total_x() const {
    at::Tensor x = at::zeros({config_.dimension}, at::kDouble);
    for (const Seat& seat : ranks_)
      if (seat.up) add(x, seat.model.x.read(), 1);
    each_share([&](const Share& share) { add(x, share.x.read(), 1); });
    each_given([&](const StateDict& state) { add(x, *state.tensor("given.x"), -1); });
    for (const Seat& seat : ranks_)
      if (seat.up) x += owed_by(seat).x;
    for (const auto& [pair, queue] : wires_)
      for (const Envelope& envelope : queue)
        if (const auto* swap = std::get_if<Swap>(&envelope.payload); swap && swap->reply)
          add(x, swap->x.read(), -1);
    return x;
  }

  at::Tensor z(Rank rank) const {
    return ranks_[static_cast<std::size_t>(rank)].role->debiased().read().clone();
  }
  // The model that a rank will have once the answers on their way to it are in.
  at::Tensor answered_z(Rank rank) const {
    at::Tensor z = this->z(rank);
    for (const Seat& from : ranks_) {
      const auto wire = wires_.find({from.number, rank});
      if (wire == wires_.end()) continue;
      for (const Envelope& envelope : wire->second)
        if (const auto* swap = std::get_if<Swap>(&envelope.payload); swap && swap->reply)
          z -= swap->x.read();
    }
    return z;
  }
  double mean_weight(Rank rank) const {
    return ranks_[static_cast<std::size_t>(rank)].role->mean_weight();
  }
  const ModelState& model(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)].model; }
  // Whether a gradient is asked for.
  bool computes(Rank rank) const {
    return ranks_[static_cast<std::size_t>(rank)].request.has_value();
  }
  // Gradients that the rank's role has had, since it joined.
  std::int64_t given(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)].given; }
  bool finished(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)].is_finished; }
  StateDict saved(Rank rank) const { return ranks_[static_cast<std::size_t>(rank)].role->save(); }
  const std::vector<Event>& events(Rank rank) const {
    return ranks_[static_cast<std::size_t>(rank)].log;
  }
  double lost_w() const { return lost_w_; }
  at::Tensor lost_x() const { return lost_x_.defined() ? lost_x_ : zeros().to(at::kDouble); }
  // Sum of all gradients committed so far, [d] double; undefined where there are none.
  at::Tensor gradients() const { return gradient_sum_; }
  const std::shared_ptr<const SharedParts>& parts() const { return parts_; }
  std::int64_t event_count() const { return events_; }
  Rng& rng() { return rng_; }

 private:
  static bool contains(const std::vector<Rank>& ranks, Rank rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }

  static void share_mass(ModelState& model, double shares) {
    model.x = FrozenTensor::freeze(model.x.read() / shares);
    model.w /= shares;
  }

  void change_parts(const std::vector<Rank>& members, const NodeChange& nodes, Step step,
                    double epoch) {
    MemberChange change;
    for (const Rank rank : members)
      change.before.push_back(contains(nodes.joining, rank) ? -1 : position_of(rank));
    if (!heads_.empty()) change.nodes_before = positions_before(nodes.heads, heads_, nodes.joining);
    change.horizon = parts_->horizon.among(static_cast<std::int32_t>(members_.size()),
                                           static_cast<std::int32_t>(members.size()), step, epoch);
    auto parts = parts_among(*parts_, change);
    GRAPEVINE_CHECK(parts.ok(), parts.error().message);
    parts_ = *parts;
    members_ = members;
    if (!heads_.empty()) heads_ = nodes.heads;
  }

  // A new life of the rank.
  static void revive(Seat& seat) {
    seat.up = true;
    seat.log.clear();
    seat.given = 0;
    seat.computed.clear();
    seat.arrived.clear();
  }
  static void take_model(Seat& seat, const ModelState& model, bool follows) {
    seat.is_finished = false;
    seat.model = model;
    if (follows) share_mass(seat.model, seat.model.w);
  }

  struct Seat : Env {
    Seat(RoleWorld& owner, Rank seat) : world(&owner), number(seat), own_rng(owner.config_.seed) {
      members.alive.assign(static_cast<std::size_t>(owner.everybody()), true);
      model.x = FrozenTensor::freeze(owner.zeros());
      role = make_role(owner.parts_, number, owner.everybody(), model);
    }
    Rank rank() const override { return number; }
    const Membership& membership() const override { return members; }
    Timestamp now() const override { return Timestamp(world->clock_); }
    Rng& rng() override { return own_rng; }
    void send(Rank to, Stamp stamp, Payload payload) override {
      Envelope envelope{number, to, stamp, std::move(payload)};
      if (world->spy_) world->spy_(envelope, false);
      if (world->at(to).up)
        world->wires_[{number, to}].push_back(std::move(envelope));
      else
        world->lose(envelope);
    }
    void compute(Step step, FrozenTensor z) override {
      if (holds) return;
      GRAPEVINE_CHECK(!request, "two gradients asked for at once");
      request = GradientRequest{step, std::move(z), {}, {}};
      left = 1;
    }
    void compute_in_parts(Step step, FrozenTensor z, const PartBegins& parts) override {
      compute(step, std::move(z));
      if (holds) return;
      request->parts = parts;
      left = parts ? parts->size() : 1;
    }
    void recycle(FrozenTensor) override {}
    void after(Duration delay, TimerId id) override {
      world->timers_.emplace(world->clock_ + delay.count(), std::pair{number, id});
    }
    void record(const Event& event) override { log.push_back(event); }
    void finished() override { is_finished = true; }

    RoleWorld* world;
    Rank number;
    Membership members;
    ModelState model;
    std::unique_ptr<Role> role;
    Rng own_rng;
    std::optional<GradientRequest> request;
    std::size_t left = 1;    // of its parts: not given yet
    std::int64_t given = 0;  // gradients, whole
    std::vector<Event> log;
    bool is_finished = false;
    bool up = true;
    bool holds = false;          // its role is about to be replaced: it computes nothing more
    bool ends_gradient = false;  // but what it computes reaches the role
    std::map<Step, at::Tensor> computed;  // gradients that the role has and did not commit
    std::map<std::pair<std::int64_t, Rank>, Share> arrived;  // delivered, not folded yet
  };

  // What may happen next: a message or news arrive, or a gradient.
  struct Choice {
    Pair arrival;
    Seat* gradient = nullptr;  // null: the arrival
  };

  bool has_arrivals(Pair pair, const std::deque<Envelope>& queue) const {
    return (!queue.empty() || news_.count(pair) > 0) && stalled_.count(pair.second) == 0;
  }
  // Where among the members.
  std::int32_t position_of(Rank rank) const {
    return static_cast<std::int32_t>(std::find(members_.begin(), members_.end(), rank) -
                                     members_.begin());
  }
  // One message that is on the wire, of a random pair, or with `gradients` one that ends; false
  // where there is none.
  bool deliver_any(bool gradients = false) {
    choices_.clear();
    for (auto& [pair, queue] : wires_)
      if (!queue.empty()) choices_.push_back({pair, nullptr});
    for (Seat& seat : ranks_)
      if (gradients && seat.ends_gradient) choices_.push_back({{}, &seat});
    if (choices_.empty()) return false;
    happen(choices_[rng_() % choices_.size()]);
    return true;
  }
  void happen(const Choice& choice) {
    if (choice.gradient != nullptr)
      give_gradient(*choice.gradient);
    else
      deliver(choice.arrival);
  }

  // sum += sign * x, of which only the model counts: what is mixed beside it comes after it. By
  // hand: LibTorch takes a microsecond for each of these few numbers. Called between all events.
  static void add(at::Tensor& sum, const at::Tensor& x, double sign) {
    const at::Tensor values = x.contiguous();
    const float* from = values.data_ptr<float>();
    double* to = sum.data_ptr<double>();
    GRAPEVINE_CHECK(values.numel() >= sum.numel(), "a model is too short");
    for (std::int64_t i = 0; i < sum.numel(); ++i) to[i] += sign * static_cast<double>(from[i]);
  }

  Seat& at(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::vector<Rank> servers() const {
    std::vector<Rank> ranks;
    for (Rank rank = config_.ranks; rank < everybody(); ++rank) ranks.push_back(rank);
    return ranks;
  }
  std::int32_t everybody() const { return all_ranks_of(parts_->plan, config_.ranks); }
  std::int64_t dimension() const { return config_.dimension; }
  at::Tensor zeros() const { return at::zeros({config_.dimension}); }

  void fire_timer() {
    const auto [due, timer] = *timers_.begin();
    timers_.erase(timers_.begin());
    clock_ = std::max(clock_, due);
    Seat& seat = at(timer.first);
    if (seat.up) seat.role->on_timer(seat, timer.second);
  }

  double chance() { return std::uniform_real_distribution<double>()(rng_); }

  void deliver(Pair pair) {
    if (wires_[pair].empty()) return tell_of_death(pair);
    Envelope envelope = std::move(wires_[pair].front());
    wires_[pair].pop_front();
    if (loses_ && loses_(envelope)) return;
    if (change_) change_(envelope);
    if (spy_) spy_(envelope, true);
    Seat& seat = at(pair.second);
    if (const auto* share = share_of(envelope))
      seat.arrived[{share->round, envelope.from}] = *share;
    const std::size_t seen = seat.log.size();
    seat.role->on_message(seat, std::move(envelope));
    note_folds(seat, seen);
  }

  void tell_of_death(Pair dead_and_told) {
    news_.erase(dead_and_told);
    const auto [dead, told] = dead_and_told;
    Seat& seat = at(told);
    seat.members.alive[static_cast<std::size_t>(dead)] = false;
    const std::size_t seen = seat.log.size();
    seat.role->on_peer_down(seat, dead);
    note_folds(seat, seen);
  }

  // The last part of those that the worker computes.
  void give_part(Seat& seat) {
    const GradientRequest& request = *seat.request;
    const std::vector<std::int64_t>& begins = *request.parts;
    const std::int64_t begin = begins[--seat.left];
    const std::int64_t end =
        seat.left + 1 < begins.size() ? begins[seat.left + 1] : config_.dimension;
    const at::Tensor value = gradient_of_(seat.number, request.step, request.z.read());
    seat.role->on_gradient_part(
        seat, {request.step, begin, FrozenTensor::copy_of(value.slice(0, begin, end))});
  }

  void give_gradient(Seat& seat) {
    if (seat.left > 1) return give_part(seat);
    GradientRequest request = std::move(*seat.request);
    seat.request.reset();
    seat.ends_gradient = false;
    ++seat.given;
    Gradient gradient;
    gradient.step = request.step;
    const at::Tensor value = gradient_of_(seat.number, request.step, request.z.read());
    seat.computed[request.step] = value.to(at::kDouble);
    const bool in_parts = request.parts != nullptr && request.parts->size() > 1;
    gradient.value =
        FrozenTensor::copy_of(in_parts ? value.slice(0, 0, (*request.parts)[1]) : value);
    request.z = {};
    const std::size_t seen = seat.log.size();
    seat.role->on_gradient(seat, std::move(gradient));
    note_folds(seat, seen);
  }

  // Shares leave `arrived` as the role says that it applied them, oldest round first; gradients
  // count once it says that they are committed.
  void note_folds(Seat& seat, std::size_t seen) {
    for (; seen < seat.log.size(); ++seen) {
      const Event& event = seat.log[seen];
      if (event.kind == EventKind::committed) {
        const auto computed = seat.computed.extract(event.stamp.step);
        GRAPEVINE_CHECK(!computed.empty(), "a gradient is committed that is none, or twice");
        gradient_sum_ =
            gradient_sum_.defined() ? gradient_sum_ + computed.mapped() : computed.mapped();
      }
      if (event.kind != EventKind::applied || event.peer < 0) continue;
      for (auto it = seat.arrived.begin(); it != seat.arrived.end(); ++it)
        if (it->first.second == event.peer) {
          seat.arrived.erase(it);
          break;
        }
    }
  }

  // Of a model; weights that travel beside compressed differences are none, nor are running sums.
  static const Share* share_of(const Envelope& envelope) {
    const auto* share = std::get_if<Share>(&envelope.payload);
    const bool is_of_model = share != nullptr && share->x.numel() > 0;
    return is_of_model && share->x.dtype() == at::kFloat ? share : nullptr;
  }

  OwedMass owed_by(const Seat& seat) const {
    OwedMass owed;
    const auto* gossip = dynamic_cast<const GossipSettings*>(config_.plan.settings.get());
    if (gossip != nullptr && gossip->running_sums) owed = owed_mass(seat.role->save());
    owed.x = owed.x.defined() ? owed.x.narrow(0, 0, config_.dimension) : zeros().to(at::kDouble);
    return owed;
  }

  void lose(const Envelope& envelope) {
    if (const auto* share = share_of(envelope)) lose(share->w, share->x);
  }
  // What is mixed beside a model comes after it.
  at::Tensor model_of(const FrozenTensor& x) const {
    return x.read().narrow(0, 0, config_.dimension).to(at::kDouble);
  }
  void lose(double w, const FrozenTensor& x) {
    lost_w_ += w;
    const at::Tensor numerator = model_of(x);
    lost_x_ = lost_x_.defined() ? lost_x_ + numerator : numerator;
  }

  template <class F>
  void each_share(F&& f) const {
    for (const auto& [pair, queue] : wires_)
      for (const Envelope& envelope : queue)
        if (const auto* share = share_of(envelope)) f(*share);
    for (const Seat& seat : ranks_)
      if (seat.up)
        for (const auto& [key, share] : seat.arrived) f(share);
  }

  // The saved state of ranks that go on from a whole model, of which they have given a part away.
  template <class F>
  void each_given(F&& f) const {
    if (parts_->exchanges.longest() == 1) return;
    for (const Seat& seat : ranks_) {
      if (!seat.up) continue;
      const StateDict state = seat.role->save();
      if (state.entries().count("given.x") > 0) f(state);
    }
  }

  const WorldConfig config_;
  const GradientOf gradient_of_;
  Rng rng_;
  std::shared_ptr<const SharedParts> parts_, parts_of_start_;
  std::deque<Seat> ranks_;
  std::map<Pair, std::deque<Envelope>> wires_;
  std::set<Pair> news_;  // of the death of the first, on the way to the second, after its messages
  std::multimap<std::int64_t, std::pair<Rank, TimerId>> timers_;  // by the time when they are due
  std::int64_t clock_ = 0;                                        // ns: one for each event
  std::set<Rank> stalled_;
  bool servers_hold_first_ = false;
  std::vector<Choice> choices_;  // of one step
  Spy spy_;
  std::function<void(Envelope&)> change_;
  std::function<bool(const Envelope&)> loses_;
  at::Tensor gradient_sum_;
  double lost_w_ = 0;
  std::vector<Rank> members_;
  std::vector<Rank> heads_;  // of a hierarchy
  std::int64_t caught_up_ = 0;
  at::Tensor lost_x_;
  std::int64_t events_ = 0;
};

}  // namespace grapevine::sim
