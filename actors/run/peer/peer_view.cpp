// Changes of members, as one rank takes part in them: see ViewChange.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "actors/run/peer.hpp"
#include "actors/run/state_bytes.hpp"
#include "actors/run/supervision/run_members.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/roles/member_role.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {
namespace {

constexpr int kSequenceBits = 40;  // of the messages of one life of a rank

// The ranks of the role whose state a rank gives.
void put_ranks(StateDict& state, const TrainingRanks& ranks) {
  state.put_list("ranks.members", {ranks.members.begin(), ranks.members.end()});
  if (!ranks.heads.empty()) state.put_list("ranks.heads", {ranks.heads.begin(), ranks.heads.end()});
}

Expected<TrainingRanks> ranks_in(const StateDict& state) {
  TrainingRanks ranks;
  const auto members = state.list("ranks.members");
  if (!members) return members.error();
  ranks.members.assign(members->begin(), members->end());
  if (state.entries().count("ranks.heads") == 0) return ranks;
  const auto heads = state.list("ranks.heads");
  if (!heads) return heads.error();
  ranks.heads.assign(heads->begin(), heads->end());
  return ranks;
}

bool contains(const std::vector<Rank>& ranks, Rank rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

// A rank that was dropped alive ends when the order reaches its process. The first view of a rank
// that has not been started is one that it joins. A state of the view before that is on its way is
// still taken: until all of it has come, no message balances, and that change waits.
void PeerState::on_hold(HoldForView hold) {
  // What a rank that comes itself has received is of its own link, which has broken since.
  const bool comes = !is_server() && contains(hold.arriving, config_.rank);
  if (!started_ && !comes) forget_losses_of(hold.arriving);
  if (!member_.follows(hold)) return;
  if (!started_) begin_to_join();
  if (view_.joins) begin_numbers(hold.view);
  member_.hold(std::move(hold), asked_.has_value());
  view_.counts.clear();
  view_.take.reset();  // the supervisor has given that cut up
}

// A server that is not in the present wiring has received the reports of their earlier ends.
void PeerState::forget_losses_of(const std::vector<Rank>& arriving) {
  const auto is_of_one = [&arriving](const auto& event) {
    const auto* const lost = std::get_if<PeerLost>(&event);
    return lost != nullptr && contains(arriving, lost->peer);
  };
  before_start_.erase(std::remove_if(before_start_.begin(), before_start_.end(), is_of_one),
                      before_start_.end());
}

void PeerState::begin_to_join() {
  started_ = true;
  view_.joins = true;
  view_.ranks.members.clear();
  view_.ranks.heads.clear();
  member_.join();
  for (auto& event : std::exchange(before_start_, {}))
    if (auto* envelope = std::get_if<Envelope>(&event)) {
      on_envelope(*envelope);
    } else {
      const auto& lost = std::get<PeerLost>(event);
      member_.lose(lost.peer);
      report_link(lost);
    }
}

// The supervisor finds out whether the other process has ended or only the link to it. Nobody else
// reports a link that broke before the others knew this rank as a member.
void PeerState::report_link(const PeerLost& lost) {
  if (!lost.reason.empty())
    self_->send(config_.supervisor, LinkLost{config_.rank, lost.peer, lost.reason});
}

void PeerState::on_ask_traffic(AskTraffic ask) {
  member_.ask(ask);
  answer_traffic();
}

void PeerState::answer_traffic() {
  if (const auto traffic = member_.answer()) self_->send(config_.supervisor, *traffic);
}

// A role that was closed for a view that was never installed stays so, as does that of a rank whose
// state never came.
void PeerState::on_close_view(CloseView close) {
  if (!member_.closes(close)) return;
  if (member_.close()) {
    handling_from_ = -1;
    view_.operations = role_->close(*this);
    send_epoch_models();
  }
  view_.awaits_state = false;
  view_.state = PartialState();
  // The early messages are of a view that this rank was never part of, except at a server that has
  // no slice yet: its clients still want an answer.
  if (!is_server() || !view_.joins) view_.early.clear();
  ViewClosed closed;
  closed.view = close.view;
  closed.rank = config_.rank;
  closed.operations = view_.joins ? ViewClosed::kJoins : view_.operations;
  closed.step = model_.step;
  closed.epoch = model_.epoch;
  closed.w = model_.w;
  closed.taken = batches_taken();
  if (!view_.joins) closed.counts = role_->counts();
  self_->send(config_.supervisor, closed);
}

void PeerState::on_counts(const ViewCounts& counts) {
  if (member_.takes(counts)) view_.counts.insert(counts.counts.begin(), counts.counts.end());
}

void PeerState::on_install(const InstallView& view) {
  if (!member_.installs(view)) return;
  const ClosedCounts counts = std::exchange(view_.counts, {});
  given_ = {};  // all takers that live have had it: see send_parts()
  if (is_server() && view.kind == ViewKind::new_wiring)
    return serves(config_.rank, view) ? begin_as_server(view) : suspend_server();
  const bool behind = contains(view.behind, config_.rank);
  if (!view_.joins && contains(view.joining, config_.rank)) join_anew();
  view_.install = view;
  if (behind || view_.joins) {
    leave_servers(view);
    deal_.first_step = deal_end_;  // what this rank has taken has counted
    view_.awaits_state = true;
    view_.state_at = now();
    return take_state_if_complete();
  }
  if (!std::exchange(view_.open_is_resolved, true) && !resolve_open(view, counts)) return;
  if (exchanges_in(view)) scale_model(view.scale);
  const StateDict shared = role_->save_shared(), own = role_->save_own();
  if (view.donor == config_.rank) send_state(view, shared, role_->save_joiner());
  const TrainingRanks before = view_.ranks;
  install_role(shared, own, before);
}

// In the view of the role.
std::int64_t PeerState::batches_taken() const {
  return deal_is_new_ ? 0 : deal_end_ - deal_.first_step;
}

// False: the run ends.
bool PeerState::resolve_open(const InstallView& view, const ClosedCounts& counts) {
  if (!changes_by_mean(view, false)) {
    role_->take_back(*this, view.operations);
    return true;
  }
  const std::size_t numbers = role_->counts().size();
  const auto is_of_a_member = [&](const auto& of_rank) {
    return of_rank.second.size() == numbers &&
           std::binary_search(view.members.begin(), view.members.end(), of_rank.first);
  };
  if (counts.count(config_.rank) > 0 && std::all_of(counts.begin(), counts.end(), is_of_a_member)) {
    role_->resolve_open(*this, counts);
    return true;
  }
  fail({Errc::failed, fmt::format("rank {}: a view without its counts", config_.rank)});
  return false;
}

// Whether nothing is kept of the members' roles but their models. A rank that joins began with the
// wiring of the start.
bool PeerState::changes_by_mean(const InstallView& view, bool joins) const {
  if (view.kind != ViewKind::common_model || view_.merges) return false;
  if (!joins) return config_.parts->plan.role->changes_by_mean;
  const auto parts = changed_parts(view.settings);
  return parts.ok() && (*parts)->plan.role->changes_by_mean;
}

// The rest of a node that has lost its head: what this rank has is a copy of the lost model.
void PeerState::join_anew() {
  handling_from_ = -1;
  role_->forget(*this);
  view_.joins = true;
}

// The model of a rank that does not is a copy of its head's.
bool PeerState::exchanges_in(const InstallView& view) const {
  return view.heads.empty() || contains(view.heads, config_.rank);
}

// The model x / w stays. What lost ranks had of the weights, or gave, would change the meaning of a
// gradient's step in x from then on.
void PeerState::scale_model(double scale) {
  if (std::abs(scale - 1) < 1e-12) return;
  change_in_place(model_.x, [scale](at::Tensor& x) { kernels::scale(x, scale); });
  model_.w *= scale;
}

// The new role begins, with what this rank keeps of the old one, or takes of another's. `before`:
// the ranks of the role that has saved `shared`, which need not be of the view before: its rank may
// have lacked the state of that one.
void PeerState::install_role(const StateDict& shared, const StateDict& own,
                             const TrainingRanks& before) {
  const InstallView view = std::exchange(view_.install, {});
  const bool joins = view_.joins;
  // A server whose state did not come in the view of its wiring begins in a later one.
  const bool begins = view.kind == ViewKind::new_wiring || (joins && is_server());
  const bool by_mean = changes_by_mean(view, joins);
  const bool takes_mean = joins && !is_server() && (by_mean || (begins && !view_.merges));
  if (takes_mean && !merge_nothing(view, shared)) return;
  if (!by_mean && !(begins ? begin_wiring(view) : load_member(view, joins, shared, own, before)))
    return;
  if (view.kind == ViewKind::common_model) merge(view);
  leave_servers(view);
  view_.ranks = ranks_of(view);
  member_.install(view.view);
  view_.passes = view.passes;
  view_.open_is_resolved = false;
  view_.awaits_state = false;
  view_.state = PartialState();
  cut_.reset();
  last_cut_ = std::max(last_cut_, view.last_cut);
  share_batches(view);
  view_.joins = false;
  if (joins) begin_new_life(view);
  send_epoch_models();
  role_->on_start(*this);
  begin_in_view();
  // The next view may be proposed already: for this rank, servers that leave have ended.
  answer_traffic();
}

// Delivers the messages of this view that arrived before its role existed.
void PeerState::begin_in_view() {
  for (Envelope& envelope : view_.early.take()) {
    const Rank from = envelope.from;
    if (const auto* marker = std::get_if<Marker>(&envelope.payload)) {
      on_marker(from, marker->id);
      continue;
    }
    if (cut_ && cut_->open.count(from) > 0) cut_->in_flight.push_back(envelope);
    deliver(std::move(envelope));
  }
  if (const auto take = std::exchange(view_.take, std::nullopt)) on_snapshot(*take);
  if (const auto collect = std::exchange(view_.collect, std::nullopt)) on_collect(*collect);
}

// Messages of each life of a rank have numbers of their own, from its first HoldForView on.
void PeerState::begin_numbers(std::int64_t view) {
  sequence_ = std::max(sequence_, static_cast<std::uint64_t>(view) << kSequenceBits);
}

void PeerState::begin_new_life(const InstallView& view) {
  config_.run_start_ns += now().count();
  elapsed_before_ = Duration(view.elapsed_ns);
  epochs_sent_ = whole_epochs(view.horizon.first_epoch);
  meter_.begin_step(now());
  begin_numbers(view.view);
  trace_.view(trace_now(), model_.step, config_.rank);
  if (config_.agent)
    self_->send(config_.agent, StateArrival{config_.rank, 0, 0, true, model_.step});
}

// A role of the same kind, with the state of the one before.
bool PeerState::load_member(const InstallView& view, bool joins, const StateDict& shared,
                            const StateDict& own, const TrainingRanks& before) {
  if (view_.merges)
    role_ = make_common_model(ranks_of(view), config_.rank, model_, {});
  else if (!make_member(view, before))
    return false;
  const StateDict here = StateDict(shared).for_device(device());
  const StateDict own_here = StateDict(own).for_device(device());
  const auto loaded = joins ? role_->load_joined(here, own_here) : role_->load_kept(here, own_here);
  if (loaded) return true;
  fail({Errc::failed, fmt::format("rank {}: the state of the view before: {}", config_.rank,
                                  loaded.error().message)});
  return false;
}

std::vector<Rank> PeerState::servers_of(const InstallView& view) const {
  return RunMembers(config_.workers + view.servers, view.servers).server_ranks();
}

TrainingRanks PeerState::ranks_of(const InstallView& view) const {
  return {view.members, view.heads, servers_of(view)};
}

bool PeerState::make_member(const InstallView& view, const TrainingRanks& before) {
  auto parts = changed_parts(view.settings);
  if (!parts) {
    fail({Errc::failed,
          fmt::format("rank {}: changed settings: {}", config_.rank, parts.error().message)});
    return false;
  }
  const TrainingRanks ranks = ranks_of(view);
  if (!fits_nodes(ranks, node_size((*parts)->plan))) {
    fail({Errc::failed,
          fmt::format("rank {}: a view has not one head for each node", config_.rank)});
    return false;
  }
  parts = parts_among(**parts,
                      {positions_before(view.members, before.members, view.joining), view.horizon,
                       positions_before(view.heads, before.heads, view.joining), view.members});
  if (parts) {
    config_.parts = *std::move(parts);
    // It may be the mean of all models, which is a new vector.
    model_.x = own_model(std::exchange(model_.x, {}));
    role_ = make_member_role(config_.parts, ranks, config_.rank, model_);
    return true;
  }
  fail({Errc::peer_down, fmt::format("{} ranks remain, and cannot continue by themselves: {}",
                                     view.members.size(), parts.error().message)});
  return false;
}

// The batches that nobody has taken are shared by the members. A gradient that was asked for is of
// a batch that is dealt anew.
void PeerState::share_batches(const InstallView& view) {
  deal_.ranks = static_cast<std::int32_t>(view.members.size());
  deal_.position = position_of(config_.rank, view.members).value_or(-1);
  deal_.first_batch = view.first_batch;
  deal_is_new_ = true;
  if (std::exchange(asked_, std::nullopt)) ++stale_;
}

// ---- the state of a rank that is ahead ----

// `shared`, `joiner`: of the role before. Where weights carry mass, this rank and those that join
// share its x and w evenly, so that nothing is added; else they take copies. The state is copied
// here, once for all that take it, because this rank continues to train before the last part is
// sent.
void PeerState::send_state(const InstallView& view, const StateDict& shared,
                           const StateDict& joiner) {
  std::vector<Rank> takers = view.behind;
  takers.insert(takers.end(), view.joining.begin(), view.joining.end());
  takers.insert(takers.end(), view.new_servers.begin(), view.new_servers.end());
  if (takers.empty()) return;
  const RoleType& role = *config_.parts->plan.role;
  if (role.keeps_mass(config_.parts->plan))
    scale_model(1 / static_cast<double>(exchanging_of(view.joining, view.heads).size() + 1));
  StateDict state;
  put_model(state);
  put_ranks(state, view_.ranks);
  state.put_all("role", shared);
  state.put_all("joiner", joiner);
  state.mark_ready();
  const auto parts =
      std::make_shared<const std::vector<FrozenTensor>>(to_chunks(state, config_.state_part_bytes));
  given_.stamp.origin = config_.rank;
  given_.stamp.step = given_.stamp.version = model_.step;
  for (const Rank rank : takers)
    if (membership().is_alive(rank))
      send_parts(rank, given_.takers.emplace(rank, StateStream(view.view, parts)).first->second);
}

// Few parts are on their way to each taker, so that other messages do not wait behind the whole
// state. Until a taker that lives has all of it, a part or the answer to one is on its way, and
// both count: no change of members closes before (see ViewMember).
void PeerState::send_parts(Rank taker, StateStream& stream) {
  while (auto part = stream.next()) send(taker, given_.stamp, *std::move(part));
}

void PeerState::on_state_received(Rank taker, const StateReceived& received) {
  const auto found = given_.takers.find(taker);
  if (found == given_.takers.end() || found->second.transfer() != received.transfer ||
      !found->second.arrived(received.bytes))
    return;
  send_parts(taker, found->second);
  if (found->second.done()) given_.takers.erase(found);
}

// Chunks arrive in order: links are FIFO. The donor may know the view before this rank, and this
// rank the view after it. Chunks of a view that was never completed are ignored.
void PeerState::on_state_chunk(Rank donor, const StateChunk& chunk) {
  const std::int64_t view = view_.awaits_state ? view_.install.view : member_.number();
  if (!member_.is_closed() || chunk.transfer != view) return;
  if (!view_.state.add(chunk))
    return fail({Errc::failed, fmt::format("rank {}: a part of a state does not follow the one "
                                           "before it",
                                           config_.rank)});
  view_.state_at = now();
  Stamp stamp;
  stamp.origin = config_.rank;
  stamp.step = stamp.version = model_.step;
  send(donor, stamp, StateReceived{chunk.transfer, view_.state.arrived()});
  if (view_.joins && config_.agent)
    self_->send(config_.agent,
                StateArrival{config_.rank, view_.state.arrived(), chunk.total, false, 0});
  take_state_if_complete();
}

// The run ends, so that no view follows in which another rank would give its state.
void PeerState::leave_if_stranded() {
  const bool waits = view_.awaits_state && view_.collect.has_value();
  if (!waits || membership().is_alive(view_.install.donor)) return;
  spdlog::warn("rank {}: rank {}, whose state it waited for, is lost while the run ends: it leaves",
               config_.rank, view_.install.donor);
  self_->quit(caf::exit_reason::user_shutdown);
}

void PeerState::take_state_if_complete() {
  if (!view_.awaits_state || !view_.state.is_complete()) return;
  // Only now: if the rank with the result had been lost, no rank would be ahead of this one.
  if (!view_.joins && !std::exchange(view_.open_is_resolved, true)) role_->count_as_done(*this);
  const auto state = from_bytes(view_.state.take());  // its bytes are freed before it is copied
  const auto before = state ? ranks_in(*state) : Expected<TrainingRanks>(state.error());
  const auto taken = before ? take_model(*state) : Expected<void>(before.error());
  if (!taken)
    return fail({Errc::failed, fmt::format("rank {}: the state of another rank: {}", config_.rank,
                                           taken.error().message)});
  install_role(state->under("role"), view_.joins ? state->under("joiner") : role_->save_own(),
               *before);
}

// Where weights carry no mass a rank that joins brings the weight 1, whatever its donor has: with
// symmetric shares, too, a rank that has ended gains what others had given it before they knew.
Expected<void> PeerState::join_model(const StateDict& state) {
  if (auto restored = restore_model(state); !restored) return restored;
  const auto parts = changed_parts(view_.install.settings);
  if (!parts) return parts.error();
  const Plan& plan = (*parts)->plan;  // of the members, who may have changed it
  const bool shares = plan.role->keeps_mass(plan) && exchanges_in(view_.install);
  if (!shares) scale_model(1 / model_.w);
  return {};
}

// Steps are a rank's own, but of one that joins: the part of one that is behind in the operation
// that it lacked has counted.
Expected<void> PeerState::take_model(const StateDict& state) {
  if (view_.joins) return join_model(state);
  auto x = model_in(state);
  const auto w = state.number("model.w");
  if (!x) return x.error();
  if (!w) return w.error();
  model_.x = *std::move(x);
  model_.w = *w;
  return {};
}

}  // namespace grapevine
