// The messages between actors, and their typed interfaces. Messages with an inspect() cross
// processes; the others stay inside one.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/double_bits.hpp"
#include "actors/protocol_wire.hpp"
#include "actors/record/file_mark.hpp"
#include "actors/record/ledger.hpp"
#include "actors/record/rank_figures.hpp"
#include "actors/record/wait_report.hpp"
#include "algorithms/env.hpp"
#include "algorithms/horizon.hpp"
#include "algorithms/state_dict.hpp"
#include "gpu/compute.hpp"
#include "messages/caf_types.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// ---- to a Peer ----

struct StartTraining {};
struct TimerFired {
  TimerId id = 0;
  std::int64_t view = 0;  // whose role has set it
};
// Records for the tracer have waited long enough.
struct FlushTrace {};
// An injected stall of the messages from this rank is over.
struct StallOver {
  Rank from = 0;
};
// From the transport, after the messages that had arrived before; from the supervisor only where a
// rank's actor has died and its process has not.
struct PeerLost {
  Rank peer = 0;
  std::string reason;  // why the link to it broke; empty: it left, or the supervisor knows
};
// Take part in consistent cut `id` (Chandy & Lamport 1985).
struct TakeSnapshot {
  std::int64_t id = 0;
  std::string shards = {};  // the folder for the states of other processes; see ShardWriter
  Rank receiver = 0;        // of those that do not share it: a rank of process 0 that lives
};
// Answer with a RankReport; without the model only to check whether messages are still in flight.
struct Collect {
  bool with_model = true;
};
// The answer of process 0 to the parts of a state: so many bytes are stored.
struct PartStored {
  std::int64_t id = 0;
  Rank rank = 0;  // whose state it is
  std::int64_t bytes = 0;
};

// Can this rank make the roles of these settings? Answer with SettingsChecked.
struct CheckSettings {
  std::int64_t number = 0;                      // of the change: see WiringChange
  std::map<std::string, std::string> settings;  // LiveSettings
};
struct SettingsChecked {
  std::int64_t number = 0;
  Rank rank = 0;
  std::string why;  // it cannot; empty: it can
};

// Answer with a WaitReport (actors/record/wait_report.hpp).
struct QueryWaits {
  std::int64_t question = 0;
};

// ---- a change of members: see ViewChange ----

// From now on no timer reaches the role, and no gradient that is not being computed.
struct HoldForView {
  std::int64_t view = 0;       // its number, from 1
  std::vector<Rank> members;   // that train, and the servers, ascending
  std::vector<Rank> arriving;  // of these, that the view before has not, ascending
  bool gradients_end = false;  // those that are being computed reach the role before it closes
};
// Answer with the messages that were sent and received among these ranks.
struct AskTraffic {
  std::int64_t view = 0;
  std::int64_t round = 0;  // of questions
};
struct Traffic {
  std::int64_t view = 0;
  std::int64_t round = 0;
  Rank rank = 0;
  std::int64_t sent = 0, received = 0;
};
// No message is on its way: end what is open.
struct CloseView {
  std::int64_t view = 0;
};
// After Role::close().
struct ViewClosed {
  std::int64_t view = 0;
  Rank rank = 0;
  // The operations that are complete here; kJoins: the rank has no model yet; Role::kFollows: it
  // exchanges nothing.
  std::int64_t operations = 0;
  Step step = 0;
  double epoch = 0;
  double w = 1;                           // of its model
  std::int64_t taken = 0;                 // batches in this view
  std::vector<std::int64_t> counts = {};  // Role::counts()

  static constexpr std::int64_t kJoins = -1;
};
// What the roles of a view are.
enum class ViewKind : std::uint8_t {
  members,       // those of the view before, among other members
  common_model,  // CommonModel, between two wirings
  new_wiring     // those of `settings`, which begin with the common model
};
// Continue among the members.
struct InstallView {
  std::int64_t view = 0;
  ViewKind kind = ViewKind::members;
  std::vector<Rank> members;          // ascending
  std::vector<std::int32_t> before;   // of each, its position in the view before; -1: it joins
  Horizon horizon;                    // from the step of the rank that is furthest on
  std::int64_t first_batch = 0;       // of the members, who share the batches from there on
  std::int64_t operations = 0;        // the most that are complete on any rank
  double scale = 1;                   // of x and w, so that all weights add up to their number
  std::int64_t last_cut = 0;          // checkpoints up to it are given up
  std::int64_t elapsed_ns = 0;        // training time so far
  Rank donor = -1;                    // sends its state
  std::vector<Rank> behind, joining;  // to these
  std::vector<Rank> new_servers;      // and to these, which have no slice yet
  std::vector<Rank> heads;            // of the nodes of a hierarchy: see NodeChange; else empty
  std::vector<std::int32_t> nodes_before;            // of each
  std::map<std::string, std::string> settings = {};  // in the place of the job's: LiveSettings
  std::int32_t servers = 0;  // of the wiring: so many of the ranks behind all that train
  bool passes = false;       // another view follows at once: nothing is computed in this one
  // Role::counts() of each member. Only where RoleType::changes_by_mean.
  std::map<Rank, std::vector<std::int64_t>> counts = {};
};

// ---- the models of ranks in other processes: see ModelSender and ModelFetcher ----

// In the place of an epoch: the model at the end of the run.
inline constexpr Epoch kLastModel = -1;

// A rank's model. In process 0 it goes to the Evaluator; elsewhere to the ModelSender, which keeps
// it, and the Evaluator receives a ModelOffer.
struct EpochModel {
  Rank rank = 0;
  Epoch epoch = 0;  // at whose end it is the model, or kLastModel
  FrozenTensor z;   // may be empty
  FrozenTensor buffers;
};
// Send the numbers [begin, begin + count) of a kept model, z and then its buffers, as one
// StateChunk to a rank of process 0. Answered with ModelSent.
struct SendModel {
  Rank rank = 0;
  Epoch epoch = 0;
  std::int64_t begin = 0, count = 0;
  std::int64_t transfer = 0;  // of the StateChunk
  Rank to = 0;
};
struct ModelSent {
  std::string why;  // not; empty: it is on its way
};
// A kept model is not needed any more.
struct ReleaseModel {
  Rank rank = 0;
  Epoch epoch = 0;
};
using ModelSenderActor =
    caf::typed_actor<caf::reacts_to<EpochModel>, caf::replies_to<SendModel>::with<ModelSent>,
                     caf::reacts_to<ReleaseModel>>;

// A model that `sender` keeps, to be fetched.
struct ModelOffer {
  Rank rank = 0;
  Epoch epoch = 0;
  std::int64_t parameters = 0, buffers = 0;  // elements
  ModelSenderActor sender;                   // null: there is none
};
// To the ModelFetcher: fetch these numbers of an offered model. Answered with FetchedModel.
struct FetchModel {
  ModelOffer offer;
  std::int64_t begin = 0, count = 0;
};
struct FetchedModel {
  FrozenTensor values;  // [count] float32; empty: it could not be fetched
  bool lost = false;    // because its process is lost
  std::string why;      // else
};
// A part of a model or of a checkpoint's state that a rank of process 0 has received of rank
// `from`, which is in another process.
struct StatePart {
  Rank from = 0;
  StateChunk chunk;
};
// The ranks that train from now on; those that join send no models of earlier epochs.
struct MembersChanged {
  std::vector<Rank> members;
  std::vector<Rank> joining;
  Epoch first_epoch = 0;
};
using ModelFetcherActor =
    caf::typed_actor<caf::replies_to<FetchModel>::with<FetchedModel>, caf::reacts_to<StatePart>,
                     caf::reacts_to<PeerLost>, caf::reacts_to<MembersChanged>>;

// The last model of a rank, here or to be fetched.
struct LastModel {
  bool server = false;  // z is its slice
  FrozenTensor z, buffers;
  ModelOffer offer;
};
// To the ModelAverager, which answers with AveragedModels: the mean of the last models.
struct AverageModels {
  std::int64_t round = 0;         // an order ends the one before
  std::vector<LastModel> models;  // by rank
};
struct AveragedModels {
  std::int64_t round = 0;
  FrozenTensor z;                 // [d]; empty: a model is missing
  FrozenTensor buffers;           // [b] or empty
  double consensus_distance = 0;  // mean over workers of |z_i - z|_2 / |z|_2
  std::string why;                // a model is missing
};
using ModelAveragerActor = caf::typed_actor<caf::reacts_to<AverageModels>>;

// ---- to the Supervisor ----

// This rank has the common model of all members of the view.
struct ModelShared {
  std::int64_t view = 0;
  Rank rank = 0;
};
// The time for SettingsChecked is over.
struct SettingsTimeOver {
  std::int64_t number = 0;
};

// A step is done. Times in seconds; NaN: not measured.
struct StepReport {
  Rank rank = 0;
  Step step = 0;               // the step just finished, from 0
  double epoch = 0;            // in which it began, by this rank's own steps
  double epochs_done = 0;      // by the clock of the algorithm, after it
  double time_s = 0;           // of training, also before the checkpoint of a resumed run
  double batch_time_s = 0;     // since this rank's last step
  double exchange_time_s = 0;  // of it, waiting for other ranks
  double data_time_s = 0;      // of it, the worker waiting for its batch
  double loss = 0, top1 = 0, top5 = 0, lr = 0;
  double staleness = 0;  // mean over the updates applied in this step
  std::int64_t samples = 0;
  bool logged = true;  // false: not a row of metrics.csv
};
// This rank has taken its last step.
struct RankFinished {
  Rank rank = 0;
};
// The state of one rank in cut `id`, with the messages that were on their way to it.
struct RankSnapshot {
  std::int64_t id = 0;
  Rank rank = 0;
  Step step = 0;
  StateDict state;
  std::optional<FileMark> file = {};  // in place of the state: it is stored
};
// The same of a rank of another process: its state is in the folder of the shards.
struct StateStored {
  std::int64_t id = 0;
  Rank rank = 0;
  Step step = 0;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};
// The state of one rank in cut `id` cannot be stored.
struct SnapshotRefused {
  std::int64_t id = 0;
  Rank rank = 0;
  std::string reason;  // names the rank
};
struct RankReport {
  Rank rank = 0;
  Step step = 0;
  double w = 1;
  FrozenTensor z;        // [d], of a rank of process 0; and
  FrozenTensor buffers;  // [b] or empty
  ModelOffer offer;      // of a rank of another process: its model is fetched
  Ledger ledger;
  std::vector<double> step_seconds;  // of its steps, or a sample of them: see StepTimes
  StateDict measures;                // of its role
};
// Also to the Supervisor: RankFigures (actors/record/rank_figures.hpp), at most once a second while
// the rank trains, with its last step and before its RankReport with a model.

// A rank cannot continue.
struct RankFailed {
  Error error;  // names the rank
};
// The transport has lost `peer`, as `reporter` sees it: a broken link, or the end of a process.
struct LinkLost {
  Rank reporter = 0;
  Rank peer = 0;
  std::string reason;
};
// All of one epoch's models, averaged and evaluated. Also to the CheckpointWriter.
struct EpochEvaluated {
  Epoch epoch = 0;
  Evaluation evaluation;
  std::string error;
};
struct CheckpointWritten {
  std::int64_t id = 0;
  std::string path;
  std::string error;
};
struct StopRequested {};
struct CheckpointRequested {};
// A process of the run has closed its trace and is about to end.
struct ProcessClosed {
  std::int32_t process = 0;
};
struct Watchdog {};
struct CollectAgain {};
struct AskTrafficAgain {};
// The time to ask a process again whether it lives.
struct AskAgain {
  std::int32_t process = 0;
};
// The time to compare the clock of a process with this one's; `left`: more times in this burst.
struct CompareClocks {
  std::int32_t process = 0;
  int left = 0;
  std::int64_t incarnation = 0;  // of the process: another one is compared by itself
};
// A validation has finished a batch, or a checkpoint the file of a rank.
struct Progress {};

// ---- to the Evaluator, CheckpointWriter and Tracer ----

// The work of a rank that was lost or left out, and has no state any more.
struct FormerLife {
  Rank rank = 0;
  Ledger ledger;  // of its newest figures
  std::int64_t samples = 0;
};
struct WriteCheckpoint {
  std::int64_t id = 0;
  std::string name;
  std::vector<RankSnapshot> ranks;
  std::vector<Rank> lost;  // of which there is none
  std::vector<FormerLife> former;
  std::map<std::string, std::string> settings = {};  // in the place of the job's: LiveSettings
  std::optional<double> next_change = {};            // the epoch of the next planned one
};
// To a ShardWriter: a state, and the folder for it.
struct StoreState {
  RankSnapshot snapshot;
  std::string folder;
  Rank receiver = 0;  // where the folder is not shared
};
// The time to look for that folder again.
struct LookAgain {
  std::int64_t id = 0;
  Rank rank = 0;
};
// The cut was given up.
struct DropShards {};
struct TraceBatch {
  std::vector<TraceRecord> records;
};
struct TracePulse {};
struct CloseTrace {};
// A file of the trace refuses what is written to it: for the first time.
struct TraceRefused {
  std::string error;
};
struct TraceClosed {
  std::uint64_t hash = 0;
  std::uint64_t records = 0;
  std::string error;
  std::uint64_t dropped = 0;  // records that were dropped: the disk was too slow
};

// ---- between processes ----

// The run is over, for the reason given: sent to every other process.
struct RunEnded {
  bool failed = false;
  Error error;  // where it failed
  bool interrupted = false;
  std::string checkpoint;  // the newest one written, or empty
  bool leaves = false;     // this process alone: the others train on
};
// The path for --resume from now on: the run's folder once it has a checkpoint, before that the
// checkpoint that this run has resumed from.
struct ResumeFrom {
  std::string path;
};
// The process is lost: its ranks are down.
struct ProcessLost {
  std::int32_t process = 0;
};
// The lost process is about to return: its connection is to be accepted.
struct ExpectProcess {
  std::int32_t process = 0;
};
// Asks the agent of a process whether the process lives; and the answer.
struct Ping {};
struct Pong {};
// Asks for the clock of a process, as its trace has it; and the answer.
struct AskClock {};
struct ClockReading {
  std::int64_t time_ns = 0;
  std::int64_t zero_ns = 0;  // of these times, by the monotonic clock
};

// ---- interfaces ----

using WorkerActor = caf::typed_actor<caf::reacts_to<GradientRequest>>;

using PeerActor = caf::typed_actor<
    caf::reacts_to<StartTraining>, caf::reacts_to<GradientPart>, caf::reacts_to<Gradient>,
    caf::reacts_to<Envelope>, caf::reacts_to<TimerFired>, caf::reacts_to<PeerLost>,
    caf::reacts_to<TakeSnapshot>, caf::reacts_to<Collect>, caf::reacts_to<FlushTrace>,
    caf::reacts_to<StallOver>, caf::reacts_to<HoldForView>, caf::reacts_to<AskTraffic>,
    caf::reacts_to<CloseView>, caf::reacts_to<InstallView>, caf::reacts_to<QueryWaits>,
    caf::reacts_to<PartStored>, caf::reacts_to<CheckSettings>>;

// A cut begins: a folder for the states of other processes is needed.
struct PrepareShards {
  std::int64_t id = 0;
  std::string folder;
  std::vector<PeerActor> peers;  // by rank
};

// Between a Peer whose model is on a device and the transport.
using OutgoingStagerActor =
    caf::typed_actor<caf::reacts_to<Envelope>, caf::replies_to<Ping>::with<Pong>>;
using IncomingStagerActor = caf::typed_actor<caf::reacts_to<Envelope>, caf::reacts_to<PeerLost>>;
using EvaluatorActor = caf::typed_actor<caf::reacts_to<EpochModel>, caf::reacts_to<ModelOffer>,
                                        caf::reacts_to<MembersChanged>>;
using CheckpointWriterActor =
    caf::typed_actor<caf::reacts_to<WriteCheckpoint>, caf::reacts_to<PrepareShards>,
                     caf::reacts_to<DropShards>, caf::reacts_to<StatePart>,
                     caf::reacts_to<EpochEvaluated>>;
using ShardWriterActor = caf::typed_actor<caf::reacts_to<StoreState>, caf::reacts_to<LookAgain>,
                                          caf::reacts_to<PartStored>>;
using TracerActor = caf::typed_actor<caf::reacts_to<TraceBatch>, caf::reacts_to<ClockSample>,
                                     caf::reacts_to<SettingsChange>, caf::reacts_to<TracePulse>,
                                     caf::reacts_to<CloseTrace>>;

// The agent of the head's supervisor in every other process.
using ProcessAgentActor = caf::typed_actor<
    caf::reacts_to<RunEnded>, caf::reacts_to<TraceClosed>, caf::reacts_to<TraceRefused>,
    caf::reacts_to<StopRequested>, caf::reacts_to<CheckpointRequested>, caf::reacts_to<ResumeFrom>,
    caf::reacts_to<ProcessLost>, caf::reacts_to<ExpectProcess>, caf::replies_to<Ping>::with<Pong>,
    caf::replies_to<AskClock>::with<ClockReading>>;

// The actor that closes a trace.
using TraceOwner = caf::typed_actor<caf::reacts_to<TraceClosed>, caf::reacts_to<TraceRefused>>;

// All processes are connected: train.
struct BeginRun {
  std::vector<PeerActor> peers;           // by rank
  std::vector<ProcessAgentActor> agents;  // of all other processes
  EvaluatorActor evaluator;               // null: no validation beside training
  CheckpointWriterActor writer;           // null: no checkpoints
  TracerActor tracer;                     // null: no trace
  ModelFetcherActor fetcher = {};         // null: a single process; and
  ModelAveragerActor averager = {};
};

// May a process take the place of a lost one while the run continues? And the answer.
struct AskPlace {
  std::int32_t process = 0;
  Rank rank = -1;  // of process 0, if its actor alone has ended
};
struct Place {
  bool granted = false;
  bool later = false;                // not granted yet: ask again
  std::string reason;                // where it is not granted, a phrase after the process's name
  std::vector<std::int32_t> absent;  // where it is granted: the other processes that are lost
};
// Which process is lost, so that another may take its place? And the answer.
struct AskVacancy {};
struct Vacancy {
  std::int32_t process = 0;  // 0: none is
  bool later = false;        // where none is: one may be
  std::string reason;        // where none is
};
// A process to which a place was granted is connected to the others, and its ranks wait for a view;
// or it has failed.
struct ProcessReturned {
  std::int32_t process = 0;
  Rank rank = -1;  // of process 0, if it alone returns
  ProcessAgentActor agent;
  std::vector<PeerActor> peers;  // of its ranks; empty: it has failed
};

// From the actor Control (actors/run/control): how does the run do; a change of it.
struct AskRunState {};
struct RunState;
struct ControlRequest;
struct ControlReply;
// Asks ranks what they wait for, and receives their answers.
using WaitListener = caf::typed_actor<caf::reacts_to<WaitReport>>;

using SupervisorActor = caf::typed_actor<
    caf::reacts_to<BeginRun>, caf::reacts_to<StepReport>, caf::reacts_to<RankFinished>,
    caf::reacts_to<RankSnapshot>, caf::reacts_to<RankReport>, caf::reacts_to<RankFailed>,
    caf::reacts_to<EpochEvaluated>, caf::reacts_to<Progress>, caf::reacts_to<CheckpointWritten>,
    caf::reacts_to<StopRequested>, caf::reacts_to<CheckpointRequested>, caf::reacts_to<Watchdog>,
    caf::reacts_to<CollectAgain>, caf::reacts_to<TraceClosed>, caf::reacts_to<TraceRefused>,
    caf::reacts_to<ProcessClosed>, caf::reacts_to<LinkLost>, caf::reacts_to<AskAgain>,
    caf::reacts_to<SnapshotRefused>, caf::reacts_to<CompareClocks>, caf::reacts_to<RankFigures>,
    caf::reacts_to<Traffic>, caf::reacts_to<ViewClosed>, caf::reacts_to<AskTrafficAgain>,
    caf::replies_to<AskPlace>::with<Place>, caf::replies_to<AskVacancy>::with<Vacancy>,
    caf::reacts_to<ProcessReturned>, caf::reacts_to<WaitReport>, caf::reacts_to<StateStored>,
    caf::reacts_to<SettingsChecked>, caf::reacts_to<ModelShared>, caf::reacts_to<SettingsTimeOver>,
    caf::reacts_to<AveragedModels>, caf::replies_to<AskRunState>::with<RunState>,
    caf::replies_to<ControlRequest>::with<ControlReply>>;

// ---- rendezvous ----

// A process joins the run. Answered with Admission once all have joined, or with a refusal.
struct Join {
  std::int32_t process = 0;
  std::int32_t processes = 1;                   // of its job, from its launcher
  std::string job;                              // its launcher's name for it, or empty
  std::int64_t user = -1;                       // number of the user that runs it
  std::string version;                          // of the program
  std::map<std::string, std::string> identity;  // of the job: must be the same everywhere
  std::string host;
  std::string address;      // of its transport
  ProcessAgentActor agent;  // null: the head itself
  std::string nonce;        // random: known to this process and the head
  std::string proof;        // that it knows the job's secret; empty: its job has none
};
struct Admission {
  std::string nonce;  // random, of the run
  std::string proof;  // that the head knows the job's secret
  bool refused = false;
  Error error;                  // where refused
  std::string out;              // the head's output folder
  std::uint64_t trace_run = 0;  // names the run in its traces
  SupervisorActor supervisor;
  EvaluatorActor evaluator;
  bool validates = false;            // whether `evaluator` is there
  bool joins = false;                // a run that has begun, in the place of a lost process
  std::vector<std::int32_t> absent;  // other processes that are lost, or have not come yet
};
// A process that was admitted asks for the addresses of all, one page after the other. And the
// answer; none to a process that was not admitted.
struct AskAddresses {
  std::string nonce;       // of its Join
  std::int32_t first = 0;  // process
};
struct Addresses {
  std::int32_t first = 0;              // process, and
  std::vector<std::string> hosts;      // of those that follow it
  std::vector<std::string> addresses;  // of their transports
  std::string proof;                   // that the head knows the job's secret
};
// A process that knows the address of the head alone asks for the place of a lost process and for
// its job. And the answer.
struct AskJob {
  std::string version;  // of the program
  std::string nonce;    // random
  std::string proof;    // that it knows the job's secret; empty: it knows none
};
struct JobOffer {
  bool refused = false;
  bool later = false;  // where refused: ask again
  Error error;         // where refused
  std::int32_t process = 0, processes = 0;
  std::string job;        // the launcher's name for it
  std::string transport;  // of all processes
  std::string text;       // the resolved job, as job.toml has it
  std::string proof;      // that the head knows the job's secret
};
// Its transport is connected and its peers wait for StartTraining; or it could not.
struct Ready {
  std::int32_t process = 0;
  std::string nonce;  // of its Join
  bool failed = false;
  Error error;
  std::vector<PeerActor> peers;  // its own, by rank
};
struct JoinDeadline {
  bool connecting = false;  // of the second part, after all have joined
};
// Time to report the missing processes to the user.
struct JoinNotice {};
// Time to ask again for a place for the process that joined with `nonce`.
struct AskPlaceAgain {
  std::string nonce;
};

using RendezvousActor = caf::typed_actor<
    caf::replies_to<Join>::with<Admission>, caf::replies_to<AskAddresses>::with<Addresses>,
    caf::replies_to<AskJob>::with<JobOffer>, caf::reacts_to<Ready>, caf::reacts_to<JoinDeadline>,
    caf::reacts_to<JoinNotice>, caf::reacts_to<AskPlaceAgain>>;

// ---- how they are written ----
//
// The names are part of the wire format: a process of another version must decode a refusal.

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StartTraining&) {
  return f(caf::meta::type_name("grapevine::StartTraining"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PeerLost& m) {
  return f(caf::meta::type_name("grapevine::PeerLost"), m.peer, m.reason);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, LinkLost& m) {
  return f(caf::meta::type_name("grapevine::LinkLost"), m.reporter, m.peer, m.reason);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ResumeFrom& m) {
  return f(caf::meta::type_name("grapevine::ResumeFrom"), m.path);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ProcessLost& m) {
  return f(caf::meta::type_name("grapevine::ProcessLost"), m.process);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ExpectProcess& m) {
  return f(caf::meta::type_name("grapevine::ExpectProcess"), m.process);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ping&) {
  return f(caf::meta::type_name("grapevine::Ping"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Pong&) {
  return f(caf::meta::type_name("grapevine::Pong"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskClock&) {
  return f(caf::meta::type_name("grapevine::AskClock"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ClockReading& m) {
  return f(caf::meta::type_name("grapevine::ClockReading"), m.time_ns, m.zero_ns);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, TakeSnapshot& m) {
  return f(caf::meta::type_name("grapevine::TakeSnapshot"), m.id, m.shards, m.receiver);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Collect& m) {
  return f(caf::meta::type_name("grapevine::Collect"), m.with_model);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, QueryWaits& m) {
  return f(caf::meta::type_name("grapevine::QueryWaits"), m.question);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Awaited& m) {
  return f(caf::meta::type_name("grapevine::Awaited"), m.from, m.payload, m.operation, m.part,
           m.parts);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, WaitReport& m) {
  return f(caf::meta::type_name("grapevine::WaitReport"), m.question, m.rank, m.step, m.worker,
           m.computing, m.computing_ns, m.waiting_ns, m.waits, m.view, m.holds_messages_back,
           m.queued_bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, HoldForView& m) {
  return f(caf::meta::type_name("grapevine::HoldForView"), m.view, m.members, m.arriving,
           m.gradients_end);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskTraffic& m) {
  return f(caf::meta::type_name("grapevine::AskTraffic"), m.view, m.round);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Traffic& m) {
  return f(caf::meta::type_name("grapevine::Traffic"), m.view, m.round, m.rank, m.sent, m.received);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CloseView& m) {
  return f(caf::meta::type_name("grapevine::CloseView"), m.view);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ViewClosed& m) {
  DoubleBits reals(m.epoch, m.w);
  return f(caf::meta::type_name("grapevine::ViewClosed"), m.view, m.rank, m.operations, m.step,
           m.taken, m.counts, reals.bits,
           caf::meta::load_callback([&reals] { return reals.restore(); }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, InstallView& m) {
  Horizon& h = m.horizon;
  DoubleBits reals(h.steps_per_epoch, h.first_epoch, h.planned_epochs, m.scale);
  return f(caf::meta::type_name("grapevine::InstallView"), m.view, m.kind, m.members, m.before,
           h.steps, h.by_samples, h.first_step, m.first_batch, m.operations, m.last_cut,
           m.elapsed_ns, m.donor, m.behind, m.joining, m.new_servers, m.heads, m.nodes_before,
           m.settings, m.servers, m.passes, m.counts, reals.bits,
           caf::meta::load_callback([&reals] { return reals.restore(); }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckSettings& m) {
  return f(caf::meta::type_name("grapevine::CheckSettings"), m.number, m.settings);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SettingsChecked& m) {
  return f(caf::meta::type_name("grapevine::SettingsChecked"), m.number, m.rank, m.why);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ModelShared& m) {
  return f(caf::meta::type_name("grapevine::ModelShared"), m.view, m.rank);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankFinished& m) {
  return f(caf::meta::type_name("grapevine::RankFinished"), m.rank);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankFailed& m) {
  return f(caf::meta::type_name("grapevine::RankFailed"), m.error);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StopRequested&) {
  return f(caf::meta::type_name("grapevine::StopRequested"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, CheckpointRequested&) {
  return f(caf::meta::type_name("grapevine::CheckpointRequested"));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ProcessClosed& m) {
  return f(caf::meta::type_name("grapevine::Farewell"), m.process);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StateStored& m) {
  return f(caf::meta::type_name("grapevine::StateStored"), m.id, m.rank, m.step, m.bytes, m.crc32);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PartStored& m) {
  return f(caf::meta::type_name("grapevine::PartStored"), m.id, m.rank, m.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SnapshotRefused& m) {
  return f(caf::meta::type_name("grapevine::SnapshotRefused"), m.id, m.rank, m.reason);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, SendModel& m) {
  return f(caf::meta::type_name("grapevine::SendModel"), m.rank, m.epoch, m.begin, m.count,
           m.transfer, m.to);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ModelSent& m) {
  return f(caf::meta::type_name("grapevine::ModelSent"), m.why);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ReleaseModel& m) {
  return f(caf::meta::type_name("grapevine::ReleaseModel"), m.rank, m.epoch);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, ModelOffer& m) {
  return f(caf::meta::type_name("grapevine::ModelOffer"), m.rank, m.epoch, m.parameters, m.buffers,
           m.sender);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankReport& m) {
  DoubleBits w(m.w);
  DoubleListBits seconds(m.step_seconds);
  return f(caf::meta::type_name("grapevine::RankReport"), m.rank, m.step, m.offer, m.ledger,
           seconds.bits, m.measures, w.bits, caf::meta::load_callback([&w, &seconds] {
             seconds.restore();
             return w.restore();
           }));
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RankFigures& m) {
  return f(caf::meta::type_name("grapevine::RankFigures"), m.rank, m.view, m.ledger, m.waited_ns,
           m.sent_bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, RunEnded& m) {
  return f(caf::meta::type_name("grapevine::RunEnded"), m.failed, m.error, m.interrupted,
           m.checkpoint, m.leaves);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Join& m) {
  return f(caf::meta::type_name("grapevine::Join"), m.process, m.processes, m.job, m.user,
           m.version, m.identity, m.host, m.address, m.agent, m.nonce, m.proof);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Admission& m) {
  return f(caf::meta::type_name("grapevine::Welcome"), m.nonce, m.proof, m.refused, m.error, m.out,
           m.trace_run, m.supervisor, m.evaluator, m.validates, m.joins, m.absent);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskAddresses& m) {
  return f(caf::meta::type_name("grapevine::AskAddresses"), m.nonce, m.first);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Addresses& m) {
  return f(caf::meta::type_name("grapevine::Addresses"), m.first, m.hosts, m.addresses, m.proof);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, AskJob& m) {
  return f(caf::meta::type_name("grapevine::AskJob"), m.version, m.nonce, m.proof);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, JobOffer& m) {
  return f(caf::meta::type_name("grapevine::JobOffer"), m.refused, m.later, m.error, m.process,
           m.processes, m.job, m.transport, m.text, m.proof);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ready& m) {
  return f(caf::meta::type_name("grapevine::Ready"), m.process, m.nonce, m.failed, m.error,
           m.peers);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, StepReport& m) {
  DoubleBits figures(m.epoch, m.epochs_done, m.time_s, m.batch_time_s, m.exchange_time_s,
                     m.data_time_s, m.loss, m.top1, m.top5, m.lr, m.staleness);
  return f(caf::meta::type_name("grapevine::StepReport"), m.rank, m.step, m.samples, m.logged,
           figures.bits, caf::meta::load_callback([&figures] { return figures.restore(); }));
}

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TimerFired)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::FlushTrace)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StallOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ClockSample)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::SettingsChange)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TracePulse)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CompareClocks)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::EpochEvaluated)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Progress)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CheckpointWritten)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::SettingsTimeOver)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Watchdog)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CollectAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskTrafficAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::MembersChanged)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::BeginRun)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankSnapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StoreState)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::LookAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::PrepareShards)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::DropShards)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StatePart)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::WriteCheckpoint)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::EpochModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::FetchModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::FetchedModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AverageModels)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AveragedModels)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CloseTrace)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceRefused)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::JoinDeadline)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::JoinNotice)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskPlaceAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskPlace)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Place)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskRunState)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RunState)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ControlRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ControlReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskVacancy)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Vacancy)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ProcessReturned)
