#include "actors/run/peer.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/shards/shard_stream.hpp"
#include "actors/run/models/model_transfer.hpp"
#include "actors/run/supervision/run_members.hpp"
#include "actors/run/whole_epochs.hpp"
#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/make_role.hpp"
#include "algorithms/roles/member_role.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/codec.hpp"
#include "messages/device/ready_event.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

// Records reach the tracer after this at most: a process that is killed leaves all older ones.
constexpr Duration kTraceDelay = std::chrono::milliseconds(200);

// The Marker that stands for a message that its transport has lost: it counts as received.
constexpr std::int64_t kLostMessage = -1;

// Where the transport delivers to: the mailbox of the Peer, or of its stager. Any thread.
template <class Receiver>
class MailboxInbox : public Inbox {
 public:
  explicit MailboxInbox(Receiver peer) : peer_(std::move(peer)) {}
  void deliver(Envelope envelope) override { caf::anon_send(peer_, std::move(envelope)); }
  void peer_down(Rank rank, const std::string& reason) override {
    caf::anon_send(peer_, PeerLost{rank, reason});
  }
  void lost(Rank rank) override {
    Envelope gap;
    gap.from = rank;
    gap.payload = Marker{kLostMessage};
    caf::anon_send(peer_, std::move(gap));
  }

 private:
  Receiver peer_;
};

}  // namespace

std::shared_ptr<Inbox> make_mailbox_inbox(PeerActor peer) {
  return std::make_shared<MailboxInbox<PeerActor>>(std::move(peer));
}

std::shared_ptr<Inbox> make_mailbox_inbox(IncomingStagerActor stager) {
  return std::make_shared<MailboxInbox<IncomingStagerActor>>(std::move(stager));
}

// ---- start and end ----

void PeerState::init(PeerActor::stateful_pointer<PeerState> self, PeerConfig config) {
  self_ = self;
  config_ = std::move(config);
  planned_steps_ = config_.parts->horizon.steps;
  const Plan& plan = config_.parts->plan;
  const std::int32_t present = config_.workers + plan.servers;
  member_ = ViewMember(config_.rank, config_.ranks, present);
  for (Rank rank = 0; rank < first_server(); ++rank) view_.ranks.members.push_back(rank);
  view_.ranks.servers = RunMembers(present, plan.servers).server_ranks();
  if (node_size(plan) > 1 && changes_members(plan))
    view_.ranks.heads = first_of_each_node(view_.ranks.members, plan.hierarchy);
  rng_.seed(mix_seed(config_.seed, static_cast<std::uint64_t>(config_.rank)));
  figures_ = LiveFigures(config_.rank);
  step_times_ = StepTimes(static_cast<std::uint64_t>(config_.rank));
  const auto scope = enter_device();
  if (!device().is_cpu()) stream_ = current_stream(device());
  if (config_.outgoing) self_->link_to(config_.outgoing);
  dimension_ = config_.parameters.numel();
  model_.x = placed(std::exchange(config_.parameters, {}));
  buffers_ = placed(std::exchange(config_.buffers, {}));
  trace_zero_ns_ = config_.run_start_ns;
  if (config_.tracer)
    trace_ = TraceRecorder(config_.rank, config_.trace_sampled, config_.trace_run);
  stalls_ = MessageStalls(config_.rank, config_.stalls);
  if (config_.rank < present)
    role_ = make_role(config_.parts, config_.rank, present, model_);
  else
    model_.x = {};
  config_.worker.activity = std::make_shared<SharedWorkerActivity>(WorkerActivity::idle);
  if (is_server()) return;
  worker_ =
      config_.detach_worker
          ? self_->spawn<caf::linked + caf::detached>(gpu_worker, config_.worker, PeerActor{self_})
          : self_->spawn<caf::linked>(gpu_worker, config_.worker, PeerActor{self_});
}

void PeerState::start() {
  if (config_.restored) {
    const auto restored = restore(*config_.restored);
    if (!restored)
      return fail({Errc::bad_input, "checkpoint of rank " + std::to_string(config_.rank) + ": " +
                                        restored.error().message});
    config_.restored.reset();
    // The servers' next epoch may end before a worker has buffers of it.
    if (serves_with_buffers() && epochs_sent_ > 0) send_model(epochs_sent_ - 1, {});
  } else if (config_.first_view) {
    if (auto taken = take_first_view(*std::exchange(config_.first_view, {})); !taken)
      return fail({Errc::bad_input,
                   fmt::format("{} ranks cannot begin by themselves: {}",
                               config_.workers - config_.absent.size(), taken.error().message)});
  }
  config_.run_start_ns += now().count();  // training begins
  step_began_ = now();
  role_->on_start(*this);
  for (Envelope& envelope : std::exchange(undelivered_, {})) {
    trace_.message(trace_now(),
                   {EventKind::received, envelope.from, envelope.stamp, model_.step, 0, 0},
                   envelope.payload);
    deliver(std::move(envelope));
  }
  started_ = true;
  for (auto& event : std::exchange(before_start_, {}))
    if (auto* envelope = std::get_if<Envelope>(&event))
      on_envelope(*envelope);
    else
      on_peer_lost(std::get<PeerLost>(event));
}

// ---- Env: what the role may do ----

Timestamp PeerState::now() const {
  const auto since_epoch = self_->clock().now().time_since_epoch();
  return std::chrono::duration_cast<Duration>(since_epoch) - Duration(config_.run_start_ns);
}

void PeerState::send(Rank to, Stamp stamp, Payload payload) {
  // A rank of the run that this one continues with fewer; or one that joins, to a role that had it.
  if (to >= config_.ranks || !member_.sends_to(to)) return;
  stamp.sent = now();
  stamp.sequence = ++sequence_;
  Envelope envelope{config_.rank, to, stamp, std::move(payload)};
  const Event event{EventKind::sent, to, stamp,
                    model_.step,     0,  config_.transport->size_of(envelope)};
  count(event);
  trace_.message(trace_now(), event, envelope.payload);
  // A role that has not received the loss. Nothing would balance this message, neither here nor at
  // the rank, which may have returned already.
  if (!membership().is_alive(to)) {
    --ledger_.sent;
    ++ledger_.sent_before;
    return;
  }
  member_.count_sent(to);
  figures_.add_sent(to, event.bytes);
  hand_over(std::move(envelope));
}

// Of a role that is about to be replaced nothing is computed: the one after it asks again.
void PeerState::ask(Step step, FrozenTensor z, PartBegins parts) {
  if (member_.is_holding() || view_.passes) return;
  asked_ = step;
  in_parts_ = 0;
  if (std::exchange(deal_is_new_, false)) deal_.first_step = deal_end_ = step;
  asked_at_ = now();
  GradientRequest request;
  request.step = step;
  request.deal = deal_;
  request.z = std::move(z);
  request.buffers = buffers_;
  request.parts = std::move(parts);
  request.recycled = std::move(recycled_);
  recycled_ = FrozenTensor();
  trace_.asked(trace_now(), step, model_.step);
  self_->send(worker_, std::move(request));
}

void PeerState::after(Duration delay, TimerId id) {
  self_->delayed_send(PeerActor{self_}, delay, TimerFired{id, member_.installed()});
}

void PeerState::record(const Event& event) {
  if (event.kind == EventKind::wait_end)
    trace_.wait_end(trace_now(), event, handling_from_, handling_sequence_);
  else
    trace_.event(trace_now(), event);
  count(event);
}

void PeerState::count(const Event& event) {
  ledger_.count(event);
  flush_trace_in_time();
  if (event.kind == EventKind::applied) {
    staleness_sum_ += static_cast<double>(event.staleness);
    ++staleness_count_;
  }
  if (event.kind == EventKind::wait_begin) {
    wait_began_ = now();
    if (open_waits_++ == 0) waits_since_ = wait_began_;
  }
  if (event.kind == EventKind::wait_end) {
    open_waits_ = std::max(0, open_waits_ - 1);
    const Duration wait = now() - wait_began_;
    waited_ += wait;
    figures_.add_wait(handling_from_, wait);
  }
  if (event.kind == EventKind::step_done) report_step();
  // A server takes no steps.
  const EventKind work = is_server() ? EventKind::applied : EventKind::step_done;
  if (event.kind == work && figures_.due(now())) report_figures();
}

void PeerState::finished() {
  if (view_.merges)
    return self_->send(config_.supervisor, ModelShared{member_.installed(), config_.rank});
  send_epoch_models();
  flush_trace();
  report_figures();
  self_->send(config_.supervisor, RankFinished{config_.rank});
}

// ---- handlers ----

// The worker still computes what is before it. Of a role that was replaced, or will be at once, it
// is of no use: the gradient is asked for again.
void PeerState::on_gradient_part(GradientPart& part) {
  if (stale_ > 0 || !member_.takes_gradient()) return;
  GRAPEVINE_CHECK(asked_ == part.step, "rank ", config_.rank, ": a part of the gradient of step ",
                  part.step, " was not asked for");
  in_parts_ += part.value.nbytes();
  handling_from_ = -1;
  role_->on_gradient_part(*this, std::move(part));
}

void PeerState::on_gradient(Gradient& gradient) {
  if (!gradient.error.empty()) {
    return fail({Errc::failed, gradient.error});
  }
  if (stale_ > 0) {
    --stale_;
    return;
  }
  GRAPEVINE_CHECK(asked_ == gradient.step, "rank ", config_.rank, ": the gradient of step ",
                  gradient.step, " was not asked for");
  asked_.reset();
  if (!member_.takes_gradient()) return;  // the role after this one asks again
  deal_end_ = std::max(deal_end_, gradient.step + 1);
  buffers_ = gradient.buffers;
  last_gradient_ = gradient;
  last_gradient_.value = FrozenTensor();
  last_gradient_.buffers = FrozenTensor();
  ledger_.samples += gradient.samples;
  Stamp stamp;
  stamp.origin = config_.rank;
  stamp.step = gradient.step;
  const std::uint64_t bytes = in_parts_ + gradient.value.nbytes();
  const Event event{EventKind::produced, -1, stamp, gradient.step, 0, bytes};
  count(event);
  trace_.produced(trace_now(), event, gradient.data_seconds, gradient.compute_seconds);
  handling_from_ = -1;
  role_->on_gradient(*this, std::move(gradient));
  if (member_.end_gradient()) answer_traffic();
}

void PeerState::on_envelope(Envelope& envelope) {
  if (!started_) {
    before_start_.emplace_back(std::move(envelope));
    return;
  }
  // After the report of its end, which follows all messages that had arrived by then.
  if (!membership().is_alive(envelope.from)) return;
  const Rank from = envelope.from;
  place(envelope);
  if (!is_held(stalls_.on_link(envelope), from)) arrive(std::move(envelope));
}

// A role that was replaced waits no longer.
void PeerState::on_timer(const TimerFired& timer) {
  if (timer.view != member_.installed() || member_.is_holding()) return;
  handling_from_ = -1;
  role_->on_timer(*this, timer.id);
}

// Whether a message is kept for later: see MessageStalls.
bool PeerState::is_held(const std::optional<Duration>& stall, Rank from) {
  if (stall && *stall > Duration::zero())
    self_->delayed_send(PeerActor{self_}, *stall, StallOver{from});
  return stall.has_value();
}

void PeerState::on_stall_over(Rank from) {
  for (Envelope& envelope : stalls_.release(from)) {
    if (from != MessageStalls::kAny) {
      arrive(std::move(envelope));
      continue;
    }
    member_.count_received(envelope.from);
    deliver(std::move(envelope));
  }
}

void PeerState::arrive(Envelope&& envelope) {
  if (const auto* marker = std::get_if<Marker>(&envelope.payload)) {
    if (marker->id == kLostMessage) return count_lost(envelope.from);
    if (member_.is_closed()) return view_.early.push_back(std::move(envelope));
    return on_marker(envelope.from, marker->id);
  }
  if (auto* chunk = std::get_if<StateChunk>(&envelope.payload)) {
    if (is_of_cut(*chunk)) return pass_on(config_.writer, envelope.from, *chunk);
    if (is_of_model(*chunk)) return pass_on(config_.fetcher, envelope.from, *chunk);
  }
  if (cut_ && cut_->open.count(envelope.from) > 0) cut_->in_flight.push_back(envelope);
  const Event event{EventKind::received, envelope.from, envelope.stamp, model_.step, 0, 0};
  count(event);
  trace_.message(trace_now(), event, envelope.payload);
  const Rank from = envelope.from;
  const auto* chunk = std::get_if<StateChunk>(&envelope.payload);
  const bool takes = chunk == nullptr && !member_.is_closed();
  // Not before the stall is over is it received: a change of members waits for it.
  if (takes && is_server() && is_held(stalls_.at_server(envelope), MessageStalls::kAny)) return;
  member_.count_received(from);
  if (chunk != nullptr) return on_state_chunk(*chunk);
  if (!takes) return view_.early.push_back(std::move(envelope));
  deliver(std::move(envelope));
}

// What the rank receives for another actor of process 0; elsewhere there is none.
template <class Actor>
void PeerState::pass_on(const Actor& actor, Rank from, StateChunk& chunk) {
  if (actor) self_->send(actor, StatePart{from, std::move(chunk)});
}

// The counts of messages in flight balance; the role is told nothing.
void PeerState::count_lost(Rank from) {
  ++ledger_.received;
  member_.count_received(from);
}

// A message may complete an epoch while the worker computes.
void PeerState::deliver(Envelope&& envelope) {
  handling_from_ = envelope.from;
  handling_sequence_ = envelope.stamp.sequence;
  role_->on_message(*this, std::move(envelope));
  handling_from_ = -1;
  send_epoch_models();
}

void PeerState::on_peer_lost(const PeerLost& lost) {
  if (!started_) {
    before_start_.emplace_back(lost);
    return;
  }
  const Rank peer = lost.peer;
  if (!membership().is_alive(peer)) return;
  on_stall_over(peer);
  member_.lose(peer);
  figures_.add_view();
  handling_from_ = -1;
  trace_.view(trace_now(), model_.step, peer);
  // The counts between the two ranks cannot balance any more: the lost rank does not report its
  // own.
  forget_messages(peer);
  if (cut_) close_channel(peer, cut_->id);
  // What it had asked of a server without a slice; it may return, and ask again.
  if (is_server() && view_.joins) {
    const auto is_of_peer = [peer](const Envelope& early) { return early.from == peer; };
    view_.early.erase(std::remove_if(view_.early.begin(), view_.early.end(), is_of_peer),
                      view_.early.end());
  }
  // The supervisor finds out whether the other process has ended or only the link to it.
  if (!lost.reason.empty())
    self_->send(config_.supervisor, LinkLost{config_.rank, peer, lost.reason});
  if (!is_server() && peer >= first_server()) {
    if (lost.reason.empty())
      fail({Errc::peer_down,
            fmt::format("rank {} has lost its server, rank {}", config_.rank, peer)});
    return;
  }
  const bool changes = changes_members(config_.parts->plan);
  // It serves the others while these come to rest. Once it has counted its messages it answers
  // none: the role after this one takes back what is open.
  if (!changes || (is_server() && !member_.is_holding())) role_->on_peer_down(*this, peer);
  if (changes) answer_traffic();
  leave_if_stranded();
}

void PeerState::forget_messages(Rank peer) {
  const ViewMember::Counts counts = member_.forget(peer);
  ledger_.sent -= counts.sent;
  ledger_.sent_before += counts.sent;
  // A message that is still held back would reach the rank's next life.
  ledger_.received -= counts.received + stalls_.forget(peer);
}

namespace {

// A report fits into a message of the control plane, whatever a role measures: see
// kMostControlBytes.
StateDict short_measures(Rank rank, const StateDict& measures) {
  constexpr std::size_t kLongest = std::size_t{8} << 10;  // bytes of a list
  StateDict kept;
  for (const auto& [name, value] : measures.entries()) {
    const auto* list = std::get_if<at::Tensor>(&value);
    if (list == nullptr || list->nbytes() <= kLongest)
      kept.put(name, value);
    else
      spdlog::warn("rank {}: its figure '{}' has {} elements and is left out of the results", rank,
                   name, list->numel());
  }
  return kept;
}

}  // namespace

void PeerState::on_collect(bool with_model) {
  if (member_.is_closed()) {
    view_.collect = with_model;
    return leave_if_stranded();
  }
  RankReport report;
  report.rank = config_.rank;
  report.step = model_.step;
  report.w = model_.w;
  report.ledger = ledger_;
  flush_trace();
  if (with_model) {
    report_figures();
    report.measures = short_measures(config_.rank, role_->measures());
    if (config_.models) {
      report.offer = offer_model(kLastModel, role_->debiased());
    } else {
      report.z = role_->debiased();
      report.buffers = buffers_;
    }
    report.step_seconds = step_times_.sample();
  }
  self_->send(config_.supervisor, std::move(report));
}

void PeerState::on_exception(const std::exception_ptr& problem) {
  fail({Errc::failed, "rank " + std::to_string(config_.rank) + ": " + exception_line(problem)});
}

World PeerState::world() const {
  World world;
  world.ranks = config_.ranks;
  world.servers = static_cast<std::int32_t>(view_.ranks.servers.size());
  world.spare = config_.ranks - config_.workers - world.servers;
  world.members_before = static_cast<std::int32_t>(view_.ranks.members.size());
  return world;
}

void PeerState::fail(Error error) { self_->send(config_.supervisor, RankFailed{std::move(error)}); }

// ---- consistent cuts (Chandy & Lamport 1985) ----

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

StateDict PeerState::snapshot() const {
  StateDict state;
  state.put("model.x", model_.x.read());
  state.put("model.w", model_.w);
  state.put("model.step", model_.step);
  state.put("model.epoch", model_.epoch);
  if (buffers_.defined()) state.put("model.buffers", buffers_.read());
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
  view.deal = deal_;
  view.deal_is_new = deal_is_new_;
  state.put_all("view", save(view));
  return state;
}

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

Expected<void> PeerState::restore_model(const StateDict& state) {
  auto x = state.tensor("model.x");
  const auto w = state.number("model.w");
  const auto step = state.integer("model.step");
  const auto epoch = state.number("model.epoch");
  if (!x) return x.error();
  if (!w) return w.error();
  if (!epoch) return epoch.error();
  if (!step) return step.error();
  if (x->sizes() != model_.x.sizes() || x->scalar_type() != at::kFloat)
    return bad_input("model.x is not of this model");
  model_.x = placed(FrozenTensor::copy_of(*x));
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

// ---- reports ----

// By the clock of the process's trace, which began before training.
std::int64_t PeerState::trace_now() const {
  const auto since_epoch = self_->clock().now().time_since_epoch();
  return std::chrono::duration_cast<Duration>(since_epoch).count() - trace_zero_ns_;
}

void PeerState::flush_trace_in_time() {
  if (trace_.full()) return flush_trace();
  if (trace_.empty() || std::exchange(flush_is_due_, true)) return;
  self_->delayed_send(PeerActor{self_}, kTraceDelay, FlushTrace{});
}

void PeerState::on_flush_trace() {
  flush_is_due_ = false;
  flush_trace();
}

void PeerState::flush_trace() {
  if (trace_.empty()) return;
  std::vector<TraceRecord> records = trace_.take();
  if (!config_.trace_budget || config_.trace_budget->take(records.size()))
    self_->send(config_.tracer, TraceBatch{std::move(records)});
}

void PeerState::report_step() {
  const Timestamp done = now();
  const Step step = last_gradient_.step;
  reported_ = step + 1;
  const Horizon& horizon = config_.parts->horizon;
  StepReport report;
  report.rank = config_.rank;
  report.step = step;
  report.logged = step % config_.log_every == 0 || step + 1 == horizon.steps;
  report.epoch = horizon.epoch_of(step);
  report.epochs_done = model_.epoch;
  report.time_s = to_seconds(elapsed_before_ + done);
  report.batch_time_s = to_seconds(done - step_began_);
  report.exchange_time_s = to_seconds(waited_);
  report.data_time_s = last_gradient_.data_seconds;
  report.loss = last_gradient_.loss;
  report.top1 = last_gradient_.top1;
  report.top5 = last_gradient_.top5;
  report.lr = model_.lr;
  report.staleness = staleness_count_ > 0 ? staleness_sum_ / static_cast<double>(staleness_count_)
                                          : std::numeric_limits<double>::quiet_NaN();
  report.samples = last_gradient_.samples;
  self_->send(config_.supervisor, report);
  send_epoch_models();
  step_times_.add(report.batch_time_s);
  waited_ = Duration::zero();
  staleness_sum_ = 0;
  staleness_count_ = 0;
  step_began_ = done;
}

void PeerState::report_figures() { self_->send(config_.supervisor, figures_.with(ledger_)); }

// A worker beside servers whose model has buffers.
bool PeerState::serves_with_buffers() const {
  return !is_server() && config_.parts->plan.servers > 0 && buffers_.defined() && config_.evaluator;
}

// Every planned epoch that has ended on this rank's clock is sent to the Evaluator, once: a
// clock that counts all ranks' gradients may run past the end. Where there are servers the model is
// theirs, and the workers' share in it are the buffers.
void PeerState::send_epoch_models() {
  const Horizon& horizon = config_.parts->horizon;
  const double planned = horizon.epoch_of(horizon.steps);
  const Epoch done = whole_epochs(std::min(model_.epoch, planned));
  for (; epochs_sent_ < done; ++epochs_sent_)
    if (config_.evaluator) {
      const bool worker_beside_servers = !is_server() && config_.parts->plan.servers > 0;
      send_model(epochs_sent_, worker_beside_servers ? FrozenTensor() : role_->debiased());
    }
}

// Process 0 fetches models of other processes when it has the memory for them.
void PeerState::send_model(Epoch epoch, FrozenTensor z) {
  if (config_.models)
    self_->send(config_.evaluator, offer_model(epoch, std::move(z)));
  else
    self_->send(config_.evaluator, EpochModel{config_.rank, epoch, std::move(z), buffers_});
}

ModelOffer PeerState::offer_model(Epoch epoch, FrozenTensor z) {
  const ModelOffer offer{config_.rank, epoch, z.numel(), buffers_.numel(), config_.models};
  self_->send(config_.models, EpochModel{config_.rank, epoch, std::move(z), buffers_});
  return offer;
}

namespace {

// A handler whose work on tensors is in the rank's own stream of its device.
template <class Message>
auto in_stream(PeerState& state, void (PeerState::*handle)(Message)) {
  return [&state, handle](Message message) {
    const auto scope = state.enter_device();
    (state.*handle)(std::forward<Message>(message));
  };
}

}  // namespace

PeerActor::behavior_type peer(PeerActor::stateful_pointer<PeerState> self, PeerConfig config) {
  PeerState& state = self->state;
  // A broken invariant, or a worker without a thread, ends the run, with its text, instead of an
  // actor in silence.
  self->set_exception_handler([&state](std::exception_ptr& problem) -> caf::error {
    state.on_exception(problem);
    return caf::exit_reason::unhandled_exception;
  });
  state.init(self, std::move(config));
  // A rank that leaves the run alone has records, too.
  self->set_exit_handler([self, &state](caf::exit_msg& exit) {
    if (!exit.reason) return;
    state.on_flush_trace();
    self->quit(std::move(exit.reason));
  });
  return {
      [&state](StartTraining) {
        const auto scope = state.enter_device();
        state.start();
      },
      in_stream(state, &PeerState::on_gradient_part),
      in_stream(state, &PeerState::on_gradient),
      in_stream(state, &PeerState::on_envelope),
      in_stream(state, &PeerState::on_timer),
      [&state](const PeerLost& lost) {
        const auto scope = state.enter_device();
        if (state.admits(lost)) state.on_peer_lost(lost);
      },
      in_stream(state, &PeerState::on_snapshot),
      [self, &state](const PartStored& stored) {
        if (state.shard_writer()) self->send(state.shard_writer(), stored);
      },
      [&state](Collect collect) {
        const auto scope = state.enter_device();
        state.on_collect(collect.with_model);
      },
      [&state](FlushTrace) { state.on_flush_trace(); },
      [&state](StallOver stall) {
        const auto scope = state.enter_device();
        state.on_stall_over(stall.from);
      },
      [&state](HoldForView& hold) {
        const auto scope = state.enter_device();
        if (state.fits(hold)) state.on_hold(std::move(hold));
      },
      in_stream(state, &PeerState::on_ask_traffic),
      [&state](QueryWaits query) { state.on_query_waits(query); },
      in_stream(state, &PeerState::on_close_view),
      [&state](const CheckSettings& asked) {
        if (state.fits(asked)) state.on_check_settings(asked);
      },
      [&state](const InstallView& view) {
        const auto scope = state.enter_device();
        if (state.fits(view)) state.on_install(view);
      },
  };
}

}  // namespace grapevine
