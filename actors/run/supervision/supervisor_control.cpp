// Questions of the actor Control, and the changes that it passes on.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "actors/run/supervisor.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {
namespace {

ControlReply refused(std::string why) { return {true, std::move(why)}; }

}  // namespace

RunState SupervisorState::on_ask_state() const {
  RunState state;
  state.stage = stage_ == Stage::running    ? crew_.empty() ? "joining" : "running"
                : stage_ == Stage::draining ? "draining"
                                            : "closing";
  state.stopping = stopping_;
  state.view = 1 + view_.installed();
  state.changes_members = is_changing();
  state.workers = members_.workers();
  for (Rank rank = 0; rank < members_.ranks(); ++rank)
    state.process_of.push_back(crew_.empty() ? 0 : members_.process_of(rank));
  state.lost = members_.lost();
  state.vacant = members_.vacant();
  state.former = progress_.ended_lives();
  state.finished = progress_.finished();
  if (stage_ != Stage::closing && stage_ != Stage::ended && !crew_.empty())
    state.peers.assign(crew_.peers().begin(), crew_.peers().begin() + members_.ranks());
  state.horizon = config_.horizon;
  state.checkpoint = result_.checkpoint;
  state.writes_checkpoint = !checkpoints_.idle();
  state.settings = settings_;
  return state;
}

caf::result<ControlReply> SupervisorState::on_control(const ControlRequest& request) {
  if (request.kind == ControlRequest::Kind::stop) return on_stop_wanted();
  if (crew_.empty()) return refused("the run has not begun: not all processes have joined");
  if (stage_ != Stage::running || stopping_) return refused("the run is ending");
  switch (request.kind) {
    case ControlRequest::Kind::stop:  // above
      break;
    case ControlRequest::Kind::checkpoint:
      return on_checkpoint_wanted();
    case ControlRequest::Kind::drain:
      return on_drain(request.rank);
    case ControlRequest::Kind::set:
      return on_set(request);
  }
  return refused("not a change that a run knows");
}

ControlReply SupervisorState::on_stop_wanted() {
  if (stopping_ || stop_early_) return {false, "the run is stopping already"};
  const bool validates = stage_ == Stage::draining && evaluations_due_ > 0;
  if (stage_ != Stage::running && !validates)
    return refused("the run has taken its last step and is ending");
  const bool joins = crew_.empty();
  on_stop_requested();
  if (validates) return {false, "the run ends without the validations that are due"};
  return {false,
          joins ? "the run stops before it begins" : "the run writes a checkpoint and stops"};
}

ControlReply SupervisorState::on_checkpoint_wanted() {
  if (!checkpoints_.enabled())
    return refused("no checkpoint: the run has no output folder, or this wiring lost a rank");
  if (preserves_previous_run())
    return refused("no checkpoint: no step was taken yet, and the folder holds another run's");
  if (!checkpoints_.idle()) return {false, "a checkpoint is being written already"};
  on_checkpoint_requested();
  return {false, "a checkpoint is being written"};
}

std::string SupervisorState::why_not_drained(Rank rank) const {
  if (rank < 0 || rank >= members_.ranks())
    return fmt::format("drain {}: the ranks are 0 to {}", rank, members_.ranks() - 1);
  if (rank >= members_.workers())
    return fmt::format("drain {}: a parameter server cannot leave", rank);
  if (members_.is_lost(rank) || drained_.count(rank) > 0)
    return fmt::format("drain {}: the rank does not train any more", rank);
  if (!config_.tolerates_worker_loss)
    return fmt::format("drain {}: this wiring does not continue without a rank", rank);
  const bool leaving = std::any_of(drained_.begin(), drained_.end(),
                                   [this](Rank drained) { return !members_.is_lost(drained); });
  if (is_changing() || leaving)
    return fmt::format("drain {}: the members are changing, ask again", rank);
  if (members_.remaining_workers() - 1 < config_.min_workers)
    return fmt::format("drain {}: {} of {} ranks that train would remain, and --min-ranks needs {}",
                       rank, members_.remaining_workers() - 1, members_.workers(),
                       config_.min_workers);
  if (members_.process_of(rank) == 0 && !fetches_models_without(rank))
    return fmt::format(
        "drain {}: it is the last rank of process 0, which takes the models of the others through "
        "it: drain others, or stop the run",
        rank);
  const std::string why = why_no_view_without({rank});
  return why.empty() ? "" : fmt::format("drain {}: {}", rank, why);
}

// Models of other processes come through a rank of process 0: one that trains, or a server that
// the run began with.
bool SupervisorState::fetches_models_without(Rank rank) const {
  if (members_.processes() == 1 || (config_.servers > 0 && members_.servers() > 0)) return true;
  return has_rank_that_trains_beside(rank);
}

// In process 0. `rank`: -1 for all of them.
bool SupervisorState::has_rank_that_trains_beside(Rank rank) const {
  const std::vector<Rank> ranks = members_.remaining_ranks_that_train();
  return std::any_of(ranks.begin(), ranks.end(), [this, rank](Rank other) {
    return other != rank && members_.process_of(other) == 0;
  });
}

// As the loss of the rank, but planned: the end of its actor, or of its process, is reported as any
// other. A process ends with its last rank, with exit code 0.
ControlReply SupervisorState::on_drain(Rank rank) {
  if (const std::string why = why_not_drained(rank); !why.empty()) return refused(why);
  drained_.insert(rank);
  const std::int32_t process = members_.process_of(rank);
  const std::int32_t remaining = members_.remaining_workers() - 1;
  if (process > 0 && members_.remaining_ranks_of(process).size() == 1) {
    RunEnded leave;
    leave.checkpoint = result_.checkpoint;
    leave.leaves = true;
    crew_.send_to({process}, leave);
    on_process_down(process);
  } else {
    crew_.end_rank(rank);
  }
  return {false, fmt::format("rank {} leaves: {} of {} ranks that train remain", rank, remaining,
                             members_.workers())};
}

std::string SupervisorState::why_not_set(const LiveSettings& changed) const {
  if (changed.empty()) return "expected KEY=VALUE";
  if (!config_.change)
    return std::string(kDoesNotChange) + ": stop the run and resume it with the new values";
  if (is_changing() || returning_) return "the members are changing, ask again";
  if (!progress_.has_steps()) return "no step was taken yet, ask again";
  if (progress_.finished() != members_.lost()) return "the run is ending";
  return why_not_fit(with_settings(settings_, changed));
}

// Also among the present members.
std::string SupervisorState::why_not_fit(const LiveSettings& settings) const {
  const auto changed = config_.change(settings);
  if (!changed) return changed.error().message;
  const Plan& plan = (*changed)->plan;
  const std::string advice =
      ": begin another run with --init " + (config_.out.empty() ? "RUN" : config_.out);
  if (!changes_members(plan)) return kDoesNotCome + advice;
  if (plan.servers == 0 && members_.processes() > 1 && !has_rank_that_trains_beside(-1))
    return "process 0 has only parameter servers left, through which it takes the models of the "
           "others: this wiring has none" +
           advice;
  if (plan.servers > std::max(config_.most_servers, members_.servers()))
    return fmt::format(
        "{} parameter servers do not come into a running job, which has room for {}{}",
        plan.servers, config_.most_servers, advice);
  return why_not_among(**changed, members_.remaining_ranks_that_train(), config_.horizon);
}

// Why there are no such parts for these ranks, ascending, with that horizon; empty: there are.
std::string SupervisorState::why_not_among(const SharedParts& parts, std::vector<Rank> members,
                                           const Horizon& horizon) {
  MemberChange same;
  same.before.resize(members.size());
  std::iota(same.before.begin(), same.before.end(), 0);
  if (node_size(parts.plan) > 1)
    same.nodes_before.resize(first_of_each_node(members, parts.plan.hierarchy).size());
  std::iota(same.nodes_before.begin(), same.nodes_before.end(), 0);
  same.members = std::move(members);
  same.horizon = horizon;
  const auto among = parts_among(parts, same);
  return among ? "" : among.error().message;
}

// Numbers take a view of the same members: it begins with messages of no exchange on their way, and
// every rank makes its role anew. Another wiring takes more: see WiringChange. In both cases the
// ranks are asked first: one that does not answer would hold up all others.
caf::result<ControlReply> SupervisorState::on_set(const ControlRequest& request) {
  if (const std::string why = why_not_set(request.settings); !why.empty())
    return refused("set: " + why);
  begin_asking(with_plain_numbers(request.settings));
  asks_for_wiring_ = self_->make_response_promise<ControlReply>();
  return asks_for_wiring_;
}

}  // namespace grapevine
