// What the actors of one process say to each other, and their typed interfaces.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include "actors/ledger.hpp"
#include "actors/trace_record.hpp"
#include "algorithms/env.hpp"
#include "algorithms/state_dict.hpp"
#include "gpu/compute.hpp"
#include "messages/caf_types.hpp"

namespace grapevine {

// ---- to a Peer ----

struct StartTraining {};
struct TimerFired {
  TimerId id = 0;
};
struct PeerLost {
  Rank peer = 0;
};
// Take part in consistent cut `id` (Chandy & Lamport 1985).
struct TakeSnapshot {
  std::int64_t id = 0;
};
// Answer with a RankReport; without the model only to see whether messages are still on their way.
struct Collect {
  bool with_model = true;
};

// ---- to the Supervisor ----

// A step is done. Times in seconds; NaN: not measured.
struct StepReport {
  Rank rank = 0;
  Step step = 0;  // the step just finished, from 0
  double epoch = 0;            // in which it began, by this rank's own steps
  double epochs_done = 0;      // by the clock of the algorithm, after it
  double time_s = 0;           // of training, also before a checkpoint that it went on from
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
};
struct RankReport {
  Rank rank = 0;
  Step step = 0;
  double w = 1;
  FrozenTensor z;        // [d]
  FrozenTensor buffers;  // [b] or empty
  Ledger ledger;
  std::vector<double> step_seconds;
};
// A rank cannot go on.
struct RankFailed {
  Error error;  // names the rank
};
// All of one epoch's models, averaged and evaluated.
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
struct Watchdog {};
struct CollectAgain {};

// ---- to the Evaluator, CheckpointWriter and Tracer ----

struct EpochModel {
  Rank rank = 0;
  Epoch epoch = 0;
  FrozenTensor z;
  FrozenTensor buffers;
};
struct WriteCheckpoint {
  std::int64_t id = 0;
  std::string name;
  std::vector<RankSnapshot> ranks;
};
struct TraceBatch {
  std::vector<TraceRecord> records;
};
struct CloseTrace {};
struct TraceClosed {
  std::uint64_t hash = 0;
  std::uint64_t records = 0;
  std::string error;
};

// ---- interfaces ----

using WorkerActor = caf::typed_actor<caf::reacts_to<GradientRequest>>;

using PeerActor =
    caf::typed_actor<caf::reacts_to<StartTraining>, caf::reacts_to<Gradient>,
                     caf::reacts_to<Envelope>, caf::reacts_to<TimerFired>, caf::reacts_to<PeerLost>,
                     caf::reacts_to<TakeSnapshot>, caf::reacts_to<Collect>>;

using EvaluatorActor = caf::typed_actor<caf::reacts_to<EpochModel>>;
using CheckpointWriterActor = caf::typed_actor<caf::reacts_to<WriteCheckpoint>>;
using TracerActor = caf::typed_actor<caf::reacts_to<TraceBatch>, caf::reacts_to<CloseTrace>>;

// Everybody is there: train.
struct BeginRun {
  std::vector<PeerActor> peers;  // by rank
  EvaluatorActor evaluator;      // null: no validation beside training
  CheckpointWriterActor writer;  // null: no checkpoints
  TracerActor tracer;            // null: no trace
};

using SupervisorActor = caf::typed_actor<
    caf::reacts_to<BeginRun>, caf::reacts_to<StepReport>, caf::reacts_to<RankFinished>,
    caf::reacts_to<RankSnapshot>, caf::reacts_to<RankReport>, caf::reacts_to<RankFailed>,
    caf::reacts_to<EpochEvaluated>, caf::reacts_to<CheckpointWritten>,
    caf::reacts_to<StopRequested>, caf::reacts_to<CheckpointRequested>, caf::reacts_to<Watchdog>,
    caf::reacts_to<CollectAgain>, caf::reacts_to<TraceClosed>>;

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StartTraining)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TimerFired)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::PeerLost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TakeSnapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Collect)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StepReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankFinished)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankSnapshot)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::RankFailed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::EpochEvaluated)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CheckpointWritten)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StopRequested)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CheckpointRequested)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::Watchdog)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CollectAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::BeginRun)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::EpochModel)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::WriteCheckpoint)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CloseTrace)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceClosed)
