// The start of a run, places of lost processes, and the interface of the Supervisor.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/processes.hpp"

namespace grapevine {

// Between a Peer whose model is on a device and the transport.
using OutgoingStagerActor =
    caf::typed_actor<caf::reacts_to<Envelope>, caf::replies_to<Ping>::with<Pong>>;
using IncomingStagerActor = caf::typed_actor<caf::reacts_to<Envelope>, caf::reacts_to<PeerLost>>;

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
  Rank rank = -1;                // of process 0, if its actor alone has ended
  ProcessAgentActor agent = {};  // of that process; none: of `rank`
  std::string host = {};         // of its machine
  std::string address = {};      // of its transport
};
struct Place {
  bool granted = false;
  bool later = false;                // not granted yet: ask again
  std::string reason;                // where it is not granted, a phrase after the process's name
  std::vector<std::int32_t> absent;  // where it is granted: the other processes that are lost
  // LiveSettings that have changed since the start, whether it is granted or not; nothing: the
  // supervisor has not answered.
  std::optional<std::map<std::string, std::string>> settings = std::nullopt;
  // Of those that have counted between the start and these, the ones of the wiring: each set once.
  std::vector<std::map<std::string, std::string>> earlier = {};
};
// Which processes are lost, so that others may take their places? And the answer.
struct AskVacancy {};
struct Vacancy {
  std::vector<std::int32_t> processes;  // ascending; empty: none is
  bool later = false;                   // where none is: one may be
  std::string reason;                   // where none is
  // As those of Place.
  std::map<std::string, std::string> settings = {};
  std::vector<std::map<std::string, std::string>> earlier = {};
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

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::BeginRun)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskPlace)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Place)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskRunState)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RunState)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ControlRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ControlReply)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::AskVacancy)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Vacancy)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ProcessReturned)
