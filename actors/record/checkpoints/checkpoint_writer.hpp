// CheckpointWriter: the actor that writes checkpoints beside training, and removes older ones.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol.hpp"
#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/checkpoints/checkpoint_keeper.hpp"
#include "actors/record/shards/shard_folder.hpp"
#include "actors/run/control/live_settings.hpp"

namespace grapevine {

// In the identity of a checkpoint, of WriteCheckpoint::next_change: the epoch of
// the first planned change that had neither taken place nor been left out. It is no setting.
inline constexpr char kNextChange[] = "next-change";

struct CheckpointWriterConfig {
  std::string folder;
  JobIdentity identity;
  // Of this run, and of the one that it continues in the same folder.
  KeptCheckpoints kept;
  bool validates = false;                   // validations come during the run
  std::map<Epoch, Evaluation> validations;  // of that one
  SupervisorActor supervisor;
  std::string resumed_from;            // a path, or empty
  bool longer = false;                 // than the run that wrote that checkpoint was to be
  std::function<void()> before_first;  // called once, before the first is written; null: nothing
  std::string nonce;                   // of the run: see ShardWriter
  // After changes of settings. Null: there are none.
  std::function<JobIdentity(const LiveSettings&)> identity_with = nullptr;
  // The text of the job file with the settings that have changed. Null: checkpoints have none.
  std::function<std::string(const LiveSettings&)> job_file_with = nullptr;
};
struct CheckpointWriterState {
  const char* name = "checkpoint_writer";
  CheckpointWriterConfig config;
  std::optional<CheckpointKeeper> keeper;
  std::int64_t cut = 0;          // of the shards
  std::vector<PeerActor> peers;  // by rank, of the same
  ShardFolder shards;
};
// Writes beside training: answers WriteCheckpoint with CheckpointWritten. Removes those that are
// not kept, one thing after the other: what is removed is never what is being written under the
// same name. Keeps the folder for the states of other processes. Spawn it detached.
CheckpointWriterActor::behavior_type checkpoint_writer(
    CheckpointWriterActor::stateful_pointer<CheckpointWriterState> self,
    CheckpointWriterConfig config);

}  // namespace grapevine
