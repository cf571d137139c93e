#include "actors/run/peer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "actors/clock_time.hpp"
#include "actors/record/shards/cut_transfer.hpp"
#include "actors/run/models/model_transfer.hpp"
#include "actors/run/supervision/run_members.hpp"
#include "actors/unexpected_messages.hpp"
#include "algorithms/roles/make_role.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/device/ready_event.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

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

void PeerState::init(LocalPeerActor::stateful_pointer<PeerState> self, PeerConfig config) {
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
  meter_ = StepMeter(static_cast<std::uint64_t>(config_.rank));
  const auto scope = enter_device();
  if (!device().is_cpu()) stream_ = current_stream(device());
  if (config_.outgoing) self_->link_to(config_.outgoing);
  dimension_ = config_.parameters.numel();
  model_.x = own_model(std::exchange(config_.parameters, {}));
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
  meter_.begin_step(now());
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
  return clock_time(self_->clock()) - Duration(config_.run_start_ns);
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

// A role that is about to be replaced gets no gradients: the next role asks again.
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
  if (event.kind == EventKind::applied) meter_.applied(event.staleness);
  if (event.kind == EventKind::wait_begin) meter_.begin_wait(now());
  if (event.kind == EventKind::wait_end) figures_.add_wait(handling_from_, meter_.end_wait(now()));
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
  meter_.worked(gradient.device_seconds);
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

// What belongs to a state that one rank gives to another is in no cut: the giving rank has given it
// before its own cut, and the other one cuts only once it has all of it.
void PeerState::arrive(Envelope&& envelope) {
  if (const auto* marker = std::get_if<Marker>(&envelope.payload)) {
    if (marker->id == kLostMessage) return count_lost(envelope.from);
    if (member_.is_closed()) return view_.early.add(std::move(envelope));
    return on_marker(envelope.from, marker->id);
  }
  const Rank from = envelope.from;
  if (auto* chunk = std::get_if<StateChunk>(&envelope.payload)) {
    if (is_of_cut(*chunk)) return pass_on(config_.writer, from, *chunk);
    if (is_of_model(*chunk)) return pass_on(config_.fetcher, from, *chunk);
    count_arrival(envelope);
    member_.count_received(from);
    return on_state_chunk(from, *chunk);
  }
  if (const auto* received = std::get_if<StateReceived>(&envelope.payload)) {
    count_arrival(envelope);
    member_.count_received(from);
    return on_state_received(from, *received);
  }
  if (cut_ && cut_->open.count(envelope.from) > 0) cut_->in_flight.push_back(envelope);
  count_arrival(envelope);
  const bool takes = !member_.is_closed();
  // The message counts as received once the stall is over: a change of members waits for it.
  if (takes && is_server() && is_held(stalls_.at_server(envelope), MessageStalls::kAny)) return;
  member_.count_received(from);
  if (!takes) return view_.early.add(std::move(envelope));
  deliver(std::move(envelope));
}

void PeerState::count_arrival(const Envelope& envelope) {
  const Event event{EventKind::received, envelope.from, envelope.stamp, model_.step, 0, 0};
  count(event);
  trace_.message(trace_now(), event, envelope.payload);
}

// Passes on what the rank receives for another actor of process 0. In other processes there is
// none.
template <class Actor>
void PeerState::pass_on(const Actor& actor, Rank from, StateChunk& chunk) {
  if (actor) self_->send(actor, StatePart{from, std::move(chunk)});
}

// The counts of messages in flight balance; the role does not learn of it.
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
  if (is_server() && view_.joins) view_.early.drop_those_of(peer);
  report_link(lost);
  if (!is_server() && peer >= first_server()) return lose_server(lost);
  const bool changes = changes_members(config_.parts->plan);
  // It serves the others while these come to rest. Once it has counted its messages it answers
  // none: the role after this one takes back what is open.
  if (!changes || (is_server() && !member_.is_holding())) role_->on_peer_down(*this, peer);
  if (changes) answer_traffic();
  leave_if_stranded();
}

// Where only the link is lost, the supervisor decides.
void PeerState::lose_server(const PeerLost& lost) {
  if (lost.reason.empty())
    fail({Errc::peer_down,
          fmt::format("rank {} has lost its server, rank {}", config_.rank, lost.peer)});
}

void PeerState::forget_messages(Rank peer) {
  given_.takers.erase(peer);
  const ViewMember::Counts counts = member_.forget(peer);
  ledger_.sent -= counts.sent;
  ledger_.sent_before += counts.sent;
  // A message that is still held back would reach the rank's next life.
  ledger_.received -= counts.received + stalls_.forget(peer);
}

void PeerState::on_exception(const std::exception_ptr& problem) {
  fail({Errc::failed, "rank " + std::to_string(config_.rank) + ": " + exception_line(problem)});
}

World PeerState::world() const {
  World world;
  world.ranks = config_.ranks;
  world.servers = static_cast<std::int32_t>(view_.ranks.servers.size());
  world.spare = config_.ranks - config_.workers - world.servers;
  return world;
}

// A rank that has no state of the run yet leaves it, with its process: the others do not need it.
void PeerState::fail(Error error) {
  if (config_.agent && (view_.joins || !started_))
    return self_->send(config_.agent, RunEnded{true, std::move(error), false, ""});
  self_->send(config_.supervisor, RankFailed{std::move(error)});
}

// ---- the actor ----

namespace {

// A handler whose work on tensors is in the rank's own stream of its device.
template <class Message>
auto in_stream(PeerState& state, void (PeerState::*handle)(Message)) {
  return [&state, handle](Message message) {
    const auto scope = state.enter_device();
    (state.*handle)(std::forward<Message>(message));
  };
}

// The same of a message that fits the run; any other is left out.
template <class Message>
auto admitted_in_stream(PeerState& state, void (PeerState::*handle)(Message)) {
  return [&state, handle](Message message) {
    const auto scope = state.enter_device();
    if (state.fits(message)) (state.*handle)(std::forward<Message>(message));
  };
}

}  // namespace

LocalPeerActor::behavior_type peer(LocalPeerActor::stateful_pointer<PeerState> self,
                                   PeerConfig config) {
  PeerState& state = self->state;
  ignore_unexpected_messages(*self);
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
      admitted_in_stream(state, &PeerState::on_peer_lost),
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
      admitted_in_stream(state, &PeerState::on_hold),
      in_stream(state, &PeerState::on_ask_traffic),
      [&state](QueryWaits query) { state.on_query_waits(query); },
      in_stream(state, &PeerState::on_close_view),
      [&state](const CheckSettings& asked) {
        if (state.fits(asked)) state.on_check_settings(asked);
      },
      admitted_in_stream(state, &PeerState::on_counts),
      admitted_in_stream(state, &PeerState::on_install),
      [&state](const StagingFailed& failed) { state.on_staging_failed(failed); },
  };
}

}  // namespace grapevine
