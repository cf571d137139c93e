// Peer: the actor that owns one rank's model and hosts its role.
#pragma once
#include <c10/core/Stream.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <variant>

#include "actors/protocol/run.hpp"
#include "actors/record/checkpoints/saved_view.hpp"
#include "actors/record/rank_figures.hpp"
#include "actors/record/state_stream.hpp"
#include "actors/record/trace_budget.hpp"
#include "actors/record/trace_recorder.hpp"
#include "actors/run/control/live_settings.hpp"
#include "actors/run/gpu_worker.hpp"
#include "actors/run/peer/early_messages.hpp"
#include "actors/run/peer/local_peer.hpp"
#include "actors/run/peer/step_meter.hpp"
#include "actors/run/peer/view_member.hpp"
#include "actors/run/stalls.hpp"
#include "actors/run/validate.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "algorithms/role.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/plan.hpp"
#include "gpu/device.hpp"
#include "gpu/memory/model_memory.hpp"
#include "net/transport.hpp"

namespace grapevine {

struct PeerConfig {
  Rank rank = 0;
  std::int32_t workers = 1;  // the ranks that train, from 0
  std::int32_t ranks = 1;    // servers included, those of wirings to come, too
  std::uint64_t seed = 0;
  std::shared_ptr<const SharedParts> parts;
  std::shared_ptr<Transport> transport;
  WorkerConfig worker;  // of no use to a server
  // The device that keeps the model, with streams of this rank's own; null: the host's memory.
  std::shared_ptr<DeviceRuntime> device;
  // For a model in the host's memory; null: it lies in ordinary memory.
  std::shared_ptr<ModelMemory> model_memory;
  OutgoingStagerActor outgoing;  // for messages to other processes; null: they leave as they are
  std::vector<Stall> stalls;     // of the run's messages
  FrozenTensor parameters;       // [d] at the start
  FrozenTensor buffers;          // [b] at the start, or empty
  std::optional<StateDict> restored;  // a RankSnapshot's state instead
  // Ranks without a state in that checkpoint, and vacant places: they join later.
  std::vector<Rank> absent;
  // See RunConfig::first_view(). Of no use to a rank that is none of its members.
  std::optional<SavedView> first_view;
  SupervisorActor supervisor;
  JoiningAgentActor agent;   // of a process that joins a run that has begun; else null
  EvaluatorActor evaluator;  // null: no validation beside training
  TracerActor tracer;        // null: no trace
  ShardWriterActor shards;   // null: this is process 0; and
  ModelSenderActor models;
  CheckpointWriterActor writer;  // in process 0, of several; and
  ModelFetcherActor fetcher;
  std::shared_ptr<TraceBudget> trace_budget;  // the tracer's; null: without a bound
  std::uint64_t trace_run = 0;                // names this run in its cuts
  std::int64_t trace_sampled = 1;             // only every so many-th step is recorded
  bool detach_worker = true;
  std::int64_t run_start_ns = 0;  // of the actor system's clock; the zero of the trace's times
  Step log_every = 1;
  std::int64_t state_part_bytes = StateStream::kPart;  // of a state that a rank gives to others
  ChangeParts change;                                  // null: settings do not change
};

// A consistent cut in progress: the state at the cut, and the messages that were on their way.
struct Cut {
  std::int64_t id = 0;
  StateDict state;
  std::set<Rank> open;               // channels whose marker has not arrived
  std::vector<Envelope> in_flight;   // received on open channels since the cut
  std::optional<TakeSnapshot> take;  // once it has come
};

// The state that this rank gives to others in its view, while parts of it are still to be sent: the
// state of the moment of InstallView, in one copy for all takers. It is freed once the last of them
// has received it or is lost, and at the next view at the latest.
struct GivenState {
  Stamp stamp;                         // of its messages
  std::map<Rank, StateStream> takers;  // to each of them
};

// The role and state of this rank in a view. ViewMember decides when they change.
struct PeerView {
  TrainingRanks ranks;            // of the role
  std::int64_t operations = 0;    // that Role::close() has returned
  bool open_is_resolved = false;  // what was open is taken back, or counts
  InstallView install;            // in progress
  ClosedCounts counts;            // of its members, as far as they have come
  bool passes = false;            // the next view follows at once: nothing is computed
  bool joins = false;             // this rank has no model of the run yet
  bool merges = false;            // the role is CommonModel
  bool awaits_state = false;      // of a rank that is ahead
  Timestamp state_at{0};          // while it does: the newest part has come, or the wait began
  PartialState state;             // of it
  EarlyMessages early;            // of the view to come
  // What the supervisor wants of that view's rank, as soon as it is one.
  std::optional<TakeSnapshot> take;
  std::optional<bool> collect;  // Collect::with_model
};

// Env for the role: the only place where its effects become CAF calls. All members belong to the
// Peer's actor.
class PeerState : public Env {
 public:
  const char* name = "peer";

  void init(LocalPeerActor::stateful_pointer<PeerState> self, PeerConfig config);

  // Env
  Rank rank() const override { return config_.rank; }
  const Membership& membership() const override { return member_.membership(); }
  Timestamp now() const override;
  Rng& rng() override { return rng_; }
  void send(Rank to, Stamp stamp, Payload payload) override;
  void compute(Step step, FrozenTensor z) override { ask(step, std::move(z), nullptr); }
  void compute_in_parts(Step step, FrozenTensor z, const PartBegins& parts) override {
    ask(step, std::move(z), parts);
  }
  void recycle(FrozenTensor buffer) override { recycled_ = std::move(buffer); }
  void after(Duration delay, TimerId id) override;
  void record(const Event& event) override;
  void finished() override;

  // Handlers
  void start();
  void on_gradient_part(GradientPart& part);
  void on_gradient(Gradient& gradient);
  void on_envelope(Envelope& envelope);
  void on_stall_over(Rank from);
  void on_flush_trace();
  void on_timer(const TimerFired& timer);
  void on_peer_lost(const PeerLost& lost);
  void on_snapshot(const TakeSnapshot& take);
  void on_collect(bool with_model);
  void on_hold(HoldForView hold);
  void forget_losses_of(const std::vector<Rank>& arriving);
  void on_ask_traffic(AskTraffic ask);
  void on_query_waits(QueryWaits query) const;
  Awaited awaited_state() const;
  void on_close_view(CloseView close);
  void on_counts(const ViewCounts& counts);
  void on_install(const InstallView& view);
  void on_check_settings(const CheckSettings& asked);
  void on_staging_failed(const StagingFailed& failed) { fail(failed.error); }
  // While it lives, the work of this thread's ATen calls is in the rank's own stream of its device.
  // Null where the model is in the host's memory. Each handler that touches tensors enters first.
  std::unique_ptr<StreamScope> enter_device() const;
  const ShardWriterActor& shard_writer() const { return config_.shards; }
  // Whether a message fits the run. Any other is logged.
  template <class Message>
  bool fits(const Message& message) {
    return gate_.admits(check(message, world()), self_->clock().now());
  }
  void on_exception(const std::exception_ptr& problem);

 private:
  void ask(Step step, FrozenTensor z, PartBegins parts);
  Expected<void> restore(const StateDict& state);
  void put_model(StateDict& state) const;
  Expected<FrozenTensor> model_in(const StateDict& state) const;
  Expected<void> restore_model(const StateDict& state);
  Expected<void> restore_progress(const StateDict& state);
  Expected<void> take_first_view(SavedView view);
  Expected<void> take_view(SavedView view);
  Expected<void> restore_view(const StateDict& state);
  StateDict snapshot() const;
  void on_marker(Rank from, std::int64_t id);
  void cut(std::int64_t id);
  void close_channel(Rank from, std::int64_t id);
  void finish_cut_if_complete();
  void arrive(Envelope&& envelope);
  void count_arrival(const Envelope& envelope);
  template <class Actor>
  void pass_on(const Actor& actor, Rank from, StateChunk& chunk);
  bool is_held(const std::optional<Duration>& stall, Rank from);
  void deliver(Envelope&& envelope);
  void count_lost(Rank from);
  void count(const Event& event);
  std::int64_t trace_now() const;
  void flush_trace_in_time();
  void flush_trace();
  void report_step();
  void report_figures();
  void send_epoch_models();
  void send_model(Epoch epoch, FrozenTensor z);
  ModelOffer offer_model(Epoch epoch, FrozenTensor z);
  bool is_client() const;
  bool serves_with_buffers() const;
  World world() const;
  void answer_traffic();
  void begin_to_join();
  void report_link(const PeerLost& lost);
  void join_anew();
  bool exchanges_in(const InstallView& view) const;
  void scale_model(double scale);
  void install_role(const StateDict& shared, const StateDict& own, const TrainingRanks& before);
  void begin_in_view();
  Expected<std::shared_ptr<const SharedParts>> changed_parts(
      const std::map<std::string, std::string>& settings) const;
  std::string why_not_made(const CheckSettings& asked) const;
  bool make_member(const InstallView& view, const TrainingRanks& before);
  bool load_member(const InstallView& view, bool joins, const StateDict& shared,
                   const StateDict& own, const TrainingRanks& before);
  bool resolve_open(const InstallView& view, const ClosedCounts& counts);
  bool changes_by_mean(const InstallView& view, bool joins) const;
  void merge(const InstallView& view);
  bool merge_nothing(const InstallView& view, const StateDict& shared);
  bool begin_wiring(const InstallView& view);
  void begin_as_server(const InstallView& view);
  void suspend_server();
  void lose_server(const PeerLost& lost);
  void forget_messages(Rank peer);
  void leave_servers(const InstallView& view);
  void begin_new_life(const InstallView& view);
  void begin_numbers(std::int64_t view);
  void share_batches(const InstallView& view);
  std::int64_t batches_taken() const;
  void send_state(const InstallView& view, const StateDict& shared, const StateDict& joiner);
  void send_parts(Rank taker, StateStream& stream);
  void on_state_received(Rank taker, const StateReceived& received);
  void on_state_chunk(Rank donor, const StateChunk& chunk);
  void leave_if_stranded();
  void take_state_if_complete();
  Expected<void> take_model(const StateDict& state);
  Expected<void> join_model(const StateDict& state);
  Rank first_server() const { return config_.workers; }
  bool is_server() const { return config_.rank >= first_server(); }
  Slice slice_of_model(std::int32_t servers) const;
  TrainingRanks ranks_of(const InstallView& view) const;
  std::vector<Rank> servers_of(const InstallView& view) const;
  bool serves(Rank rank, const InstallView& view) const {
    return rank >= first_server() && rank < first_server() + view.servers;
  }
  // Of the model: the CPU where PeerConfig::device is null.
  at::Device device() const;
  // `t` itself where it is on device() or empty, else a copy there, which the rank's stream makes
  // after the work that wrote `t`; the host does not wait for a copy between devices. REQUIRES: in
  // the scope of enter_device().
  FrozenTensor placed(const FrozenTensor& t) const;
  // A model of this rank as its role is to begin with it: placed(), and in PeerConfig::model_memory
  // where that is not null. REQUIRES: as placed().
  FrozenTensor own_model(FrozenTensor x) const;
  // The same with a copy of `x`, which is made once.
  FrozenTensor own_copy(const at::Tensor& x) const;
  // placed() for the vectors of a message (each_model_vector); its other tensors stay in the host's
  // memory. REQUIRES: as placed().
  void place(Envelope& envelope) const;
  // To the transport, by way of the stager where the receiver is in another process.
  void hand_over(Envelope envelope);
  void fail(Error error);

  // Constant after init.
  LocalPeerActor::stateful_pointer<PeerState> self_ = nullptr;
  PeerConfig config_;
  std::optional<c10::Stream> stream_;  // of enter_device(); none: the host's memory
  WorkerActor worker_;                 // null: a server
  std::int64_t dimension_ = 0;         // d, of the whole model
  std::unique_ptr<Role> role_;         // null: a server that the present wiring has not

  ViewMember member_;
  PeerView view_;
  GivenState given_;
  Step planned_steps_ = 0;      // of the horizon at the start
  std::optional<Step> asked_;   // the step that the worker computes for the role
  Timestamp asked_at_{0};       // since when
  std::uint64_t in_parts_ = 0;  // bytes of the gradient of that step that have gone ahead
  std::int64_t stale_ = 0;      // answers on their way for roles that were replaced
  Deal deal_;                   // of the batches
  bool deal_is_new_ = false;    // it begins with the next step that the role asks for
  Step deal_end_ = 0;           // the step after the last one whose batch was taken
  Rng rng_;
  ModelState model_;
  FrozenTensor buffers_;
  FrozenTensor recycled_;
  Ledger ledger_;
  std::uint64_t sequence_ = 0;
  std::optional<Cut> cut_;
  std::int64_t last_cut_ = 0;
  std::vector<Envelope> undelivered_;  // in flight at the cut that this run resumed from
  bool started_ = false;
  // From ranks that started earlier, and their ends, in the order of arrival.
  std::vector<std::variant<Envelope, PeerLost>> before_start_;

  Duration elapsed_before_{0};  // training time behind the checkpoint that this run resumed from
  StepMeter meter_;
  Gradient last_gradient_;  // without tensors
  Step reported_ = 0;       // steps that were reported, also before this run
  Epoch epochs_sent_ = 0;   // to the Evaluator
  LiveFigures figures_;
  TraceRecorder trace_;
  std::int64_t trace_zero_ns_ = 0;
  bool flush_is_due_ = false;  // a FlushTrace is on its way
  // The message that the role handles at the moment, for traces of what it causes; from -1: none.
  Rank handling_from_ = -1;
  std::uint64_t handling_sequence_ = 0;
  MessageStalls stalls_;
  Gate gate_;
};

// The Inbox through which `config.transport` reaches a Peer: the owner of the Peers attaches it
// for all of them before the first StartTraining, because CAF initialises actors lazily and a
// message to a rank that is not attached is lost.
std::shared_ptr<Inbox> make_mailbox_inbox(PeerActor peer);
// The same of a peer whose messages its stager receives (incoming_stager).
std::shared_ptr<Inbox> make_mailbox_inbox(IncomingStagerActor stager);

LocalPeerActor::behavior_type peer(LocalPeerActor::stateful_pointer<PeerState> self,
                                   PeerConfig config);

}  // namespace grapevine
