// Consistent cuts (Chandy & Lamport 1985), and the state of a rank in them and in a checkpoint.
#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/run/peer.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/member_role.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

// A rank of a view to come has no state of it yet.
void PeerState::on_snapshot(const TakeSnapshot& take) {
  if (!fits(take)) return;
  if (member_.is_closed()) {
    view_.take = take;
    return;
  }
  if (take.id > last_cut_) cut(take.id);
  if (!cut_ || cut_->id != take.id) return;
  cut_->take = take;
  finish_cut_if_complete();
}

// Records the state between two handlers and announces to all that later messages follow the cut.
// No rank stops for it. The model is not copied: a role that changes a tensor which the cut still
// holds writes to another buffer. Optimizers work in place, so their state is.
void PeerState::cut(std::int64_t id) {
  last_cut_ = id;
  cut_.emplace();
  cut_->id = id;
  cut_->state = snapshot();
  cut_->state.mark_ready();  // its writer copies it from the device
  for (const Envelope& envelope : stalls_.undelivered()) cut_->in_flight.push_back(envelope);
  trace_.cut(trace_now(), model_.step, id);
  for (Rank peer = 0; peer < config_.ranks; ++peer) {
    if (peer == config_.rank || !membership().is_alive(peer)) continue;
    cut_->open.insert(peer);
    Envelope envelope;
    envelope.from = config_.rank;
    envelope.to = peer;
    envelope.payload = Marker{id};
    const std::uint64_t bytes = config_.transport->size_of(envelope);
    ledger_.bytes_sent += bytes;
    figures_.add_sent(peer, bytes);
    hand_over(std::move(envelope));
  }
  finish_cut_if_complete();
}

void PeerState::on_marker(Rank from, std::int64_t id) {
  if (id > last_cut_) cut(id);
  close_channel(from, id);
}

void PeerState::close_channel(Rank from, std::int64_t id) {
  if (!cut_ || cut_->id != id) return;
  cut_->open.erase(from);
  finish_cut_if_complete();
}

void PeerState::finish_cut_if_complete() {
  // A marker may come before the folder is known.
  if (!cut_->open.empty() || (config_.shards && !cut_->take)) return;
  std::int64_t count = 0;
  for (const Envelope& envelope : cut_->in_flight)
    cut_->state.put("in_flight." + std::to_string(count++), stored_text(envelope));
  const auto step = cut_->state.integer("model.step");
  RankSnapshot snapshot{cut_->id, config_.rank, *step, std::move(cut_->state), std::nullopt};
  if (config_.shards)
    self_->send(config_.shards, StoreState{std::move(snapshot), std::move(cut_->take->shards),
                                           cut_->take->receiver});
  else
    self_->send(config_.supervisor, std::move(snapshot));
  cut_.reset();
}

// As restore_model() reads it.
void PeerState::put_model(StateDict& state) const {
  state.put("model.x", model_.x.read());
  state.put("model.w", model_.w);
  state.put("model.step", model_.step);
  state.put("model.epoch", model_.epoch);
  if (buffers_.defined()) state.put("model.buffers", buffers_.read());
}

StateDict PeerState::snapshot() const {
  StateDict state;
  put_model(state);
  state.put("sequence", static_cast<std::int64_t>(sequence_));
  std::ostringstream rng;
  rng << rng_;
  state.put("rng", rng.str());
  state.put("elapsed_ns", (elapsed_before_ + now()).count());
  state.put("reported", reported_);
  state.put("deal_end", deal_end_);
  state.put("trace.run", static_cast<std::int64_t>(config_.trace_run));
  state.put("trace.cut", last_cut_);
  state.put("last.step", last_gradient_.step);
  state.put("last.samples", last_gradient_.samples);
  state.put("last.loss", last_gradient_.loss);
  state.put("last.top1", last_gradient_.top1);
  state.put("last.top5", last_gradient_.top5);
  state.put_all("ledger", ledger_.save());
  state.put_all("role", role_->save());
  if (deal_.ranks == 0) return state;  // the members are those of the start
  SavedView view;
  view.number = member_.installed();
  view.ranks = view_.ranks;
  view.first_step = config_.parts->horizon.first_step;
  view.first_epoch = config_.parts->horizon.first_epoch;
  view.later_end = config_.parts->horizon.steps - planned_steps_;
  view.by_samples = config_.parts->horizon.by_samples;
  view.deal = deal_;
  view.deal_is_new = deal_is_new_;
  state.put_all("view", save(view));
  return state;
}

// ---- the state of a checkpoint ----

Expected<void> PeerState::restore(const StateDict& state) {
  if (auto model = restore_model(state); !model) return model;
  if (auto progress = restore_progress(state); !progress) return progress;
  if (auto view = restore_view(state); !view) return view;
  const StateDict in_flight = state.under("in_flight");
  for (std::size_t i = 0; i < in_flight.entries().size(); ++i) {
    const auto text = in_flight.text(std::to_string(i));
    if (!text) return text.error();
    auto envelope = stored_envelope(*text, membership().world_size());
    if (!envelope) return envelope.error();
    place(*envelope);
    if (envelope->from < config_.ranks) undelivered_.push_back(std::move(*envelope));
  }
  if (auto loaded = ledger_.load(state.under("ledger")); !loaded) return loaded;
  // Checkpoints of runs without a trace have no such cut.
  const auto run = state.integer("trace.run"), cut = state.integer("trace.cut");
  if (run && cut) trace_.resumed(trace_now(), model_.step, static_cast<std::uint64_t>(*run), *cut);
  return role_->load(state.under("role").for_device(device()));
}

// The role that its model belongs to: of the members of that moment.
Expected<void> PeerState::restore_view(const StateDict& state) {
  for (const Rank rank : config_.absent) member_.lose(rank);
  auto view = load_view(state, config_.rank, !is_server());
  if (!view) return view.error();
  return view->has_value() ? take_view(**std::move(view)) : Expected<void>();
}

Expected<void> PeerState::take_first_view(SavedView view) {
  for (const Rank rank : config_.absent) member_.lose(rank);
  view.deal.position = is_server() ? 0 : config_.rank;
  return take_view(std::move(view));
}

Expected<void> PeerState::take_view(SavedView saved) {
  std::vector<bool> alive = membership().alive;
  const Rank most = std::max(config_.ranks, saved.ranks.members.back() + 1);
  alive.resize(static_cast<std::size_t>(most), false);  // this run may have fewer
  const std::vector<Rank>& members = saved.ranks.members;
  if (!fits_nodes(saved.ranks, node_size(config_.parts->plan)))
    return bad_input("view.heads has not one rank of each node");
  auto parts = parts_of_view(*config_.parts, saved, first_server());
  if (!parts) return parts.error();
  config_.parts = *std::move(parts);
  saved.ranks.servers = view_.ranks.servers;
  role_ = make_member_role(config_.parts, saved.ranks, config_.rank, model_);
  for (Rank rank = 0; rank < first_server(); ++rank)
    if (!std::binary_search(members.begin(), members.end(), rank))
      alive[static_cast<std::size_t>(rank)] = false;
  member_.restore(saved.number, std::move(alive));
  view_.ranks = std::move(saved.ranks);
  deal_ = saved.deal;
  deal_is_new_ = saved.deal_is_new;
  return {};
}

// Its x, where this rank keeps its model.
Expected<FrozenTensor> PeerState::model_in(const StateDict& state) const {
  const auto x = state.tensor("model.x");
  if (!x) return x.error();
  if (x->sizes() != model_.x.sizes() || x->scalar_type() != at::kFloat)
    return bad_input("model.x is not of this model");
  return own_copy(*x);
}

Expected<void> PeerState::restore_model(const StateDict& state) {
  auto x = model_in(state);
  const auto w = state.number("model.w");
  const auto step = state.integer("model.step");
  const auto epoch = state.number("model.epoch");
  if (!x) return x.error();
  if (!w) return w.error();
  if (!epoch) return epoch.error();
  if (!step) return step.error();
  model_.x = *std::move(x);
  model_.w = *w;
  model_.step = *step;
  model_.epoch = *epoch;
  epochs_sent_ = whole_epochs(model_.epoch);
  if (const auto buffers = state.tensor("model.buffers"); buffers.ok())
    buffers_ = placed(FrozenTensor::copy_of(*buffers));
  return {};
}

Expected<void> PeerState::restore_progress(const StateDict& state) {
  const auto sequence = state.integer("sequence"), elapsed = state.integer("elapsed_ns"),
             step = state.integer("last.step"), samples = state.integer("last.samples");
  for (const auto* field : {&sequence, &elapsed, &step, &samples})
    if (!*field) return field->error();
  const auto loss = state.number("last.loss"), top1 = state.number("last.top1"),
             top5 = state.number("last.top5");
  for (const auto* field : {&loss, &top1, &top5})
    if (!*field) return field->error();
  const auto rng = state.text("rng");
  if (!rng) return rng.error();
  sequence_ = static_cast<std::uint64_t>(*sequence);
  elapsed_before_ = Duration(*elapsed);
  reported_ = reported_steps(state);
  deal_end_ = taken_steps(state);
  last_gradient_.step = *step;
  last_gradient_.samples = *samples;
  last_gradient_.loss = *loss;
  last_gradient_.top1 = *top1;
  last_gradient_.top5 = *top5;
  std::istringstream(*rng) >> rng_;
  return {};
}

}  // namespace grapevine
