// The messages to the CheckpointWriter, the ShardWriters and the Tracer, and their interfaces.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/supervisor.hpp"
#include "actors/record/batch_tally.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

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
  BatchTally batches = {};                           // of all changes of members so far
  BatchesOfLost lost_batches = {};
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

// A cut begins: a folder for the states of other processes is needed.
struct PrepareShards {
  std::int64_t id = 0;
  std::string folder;
  std::vector<PeerActor> peers;  // by rank
};

using CheckpointWriterActor =
    caf::typed_actor<caf::reacts_to<WriteCheckpoint>, caf::reacts_to<PrepareShards>,
                     caf::reacts_to<DropShards>, caf::reacts_to<StatePart>,
                     caf::reacts_to<EpochEvaluated>>;
using ShardWriterActor = caf::typed_actor<caf::reacts_to<StoreState>, caf::reacts_to<LookAgain>,
                                          caf::reacts_to<PartStored>>;
using TracerActor = caf::typed_actor<caf::reacts_to<TraceBatch>, caf::reacts_to<ClockSample>,
                                     caf::reacts_to<SettingsChange>, caf::reacts_to<TracePulse>,
                                     caf::reacts_to<CloseTrace>>;

// The actor that closes a trace.
using TraceOwner = caf::typed_actor<caf::reacts_to<TraceClosed>, caf::reacts_to<TraceRefused>>;

}  // namespace grapevine

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::ClockSample)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::SettingsChange)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TracePulse)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::StoreState)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::LookAgain)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::PrepareShards)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::DropShards)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::WriteCheckpoint)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::CloseTrace)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceClosed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(grapevine::TraceRefused)
