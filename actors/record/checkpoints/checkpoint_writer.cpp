#include "actors/record/checkpoints/checkpoint_writer.hpp"

#include <exception>
#include <filesystem>
#include <utility>

#include "actors/record/shards/cut_transfer.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

// Errors (failed): an exception, for example where one more copy of a state does not fit into
// memory.
Expected<std::string> try_write(const CheckpointWriterConfig& config, const WriteCheckpoint& order,
                                const std::function<void()>& on_progress,
                                const std::string& shards) {
  try {
    const LiveSettings& settings = order.settings;
    const bool changed = config.identity_with && !settings.empty();
    JobIdentity identity = changed ? config.identity_with(settings) : config.identity;
    if (order.next_change) identity[kNextChange] = number_text(*order.next_change);
    return write_checkpoint(config.folder, identity, order, on_progress, shards,
                            config.job_file_with ? config.job_file_with(settings) : "");
  } catch (...) {
    return Error{Errc::failed, exception_line(std::current_exception())};
  }
}

using Writer = CheckpointWriterActor::stateful_pointer<CheckpointWriterState>;

// Of no rank's state: ranks may be lost.
constexpr Rank kNoRank = -1;

void report_shard_failure(Writer self, Rank rank, const Error& error) {
  self->send(self->state.config.supervisor,
             SnapshotRefused{self->state.cut, rank, "the folder for states: " + error.message});
}

void prepare_shards(Writer self, PrepareShards order) {
  CheckpointWriterState& state = self->state;
  if (const auto prepare = std::exchange(state.config.before_first, nullptr)) prepare();
  state.cut = order.id;
  state.peers = std::move(order.peers);
  if (auto made = state.shards.open(order.folder, state.config.nonce); !made)
    report_shard_failure(self, kNoRank, made.error());
}

// Parts of cuts that were given up may still arrive.
void store_part(Writer self, const StatePart& part) {
  CheckpointWriterState& state = self->state;
  const StateChunk& chunk = part.chunk;
  const auto rank = static_cast<std::size_t>(part.from);
  if (cut_of(chunk) != state.cut || rank >= state.peers.size()) return;
  const auto stored = state.shards.store(part.from, chunk.offset, chunk.total, chunk.data);
  if (!stored) return report_shard_failure(self, part.from, stored.error());
  self->send(state.config.supervisor, Progress{});
  self->send(state.peers[rank], PartStored{state.cut, part.from, *stored});
}

void write_order(Writer self, const WriteCheckpoint& order) {
  CheckpointWriterConfig& config = self->state.config;
  if (const auto prepare = std::exchange(config.before_first, nullptr)) prepare();
  self->state.keeper->before_checkpoint(order.name);
  auto path = try_write(
      config, order, [&] { self->send(config.supervisor, Progress{}); },
      self->state.shards.path().string());
  self->state.shards.remove();
  if (path) self->state.keeper->on_checkpoint(*path);
  CheckpointWritten done{order.id, path ? *path : "", path ? "" : path.error().message};
  self->send(config.supervisor, std::move(done));
}

// Whether the checkpoint is one of the folder.
bool is_within(const std::string& folder, const std::string& checkpoint) {
  std::error_code unknown;
  return !checkpoint.empty() && fs::equivalent(fs::path(checkpoint).parent_path(), folder, unknown);
}

}  // namespace

CheckpointWriterActor::behavior_type checkpoint_writer(
    CheckpointWriterActor::stateful_pointer<CheckpointWriterState> self,
    CheckpointWriterConfig config) {
  CheckpointWriterState& state = self->state;
  state.config = std::move(config);
  state.keeper.emplace(state.config.folder, state.config.kept, state.config.validates);
  if (is_within(state.config.folder, state.config.resumed_from))
    state.keeper->add_earlier(state.config.validations, state.config.resumed_from,
                              state.config.longer);
  return {[self](const PrepareShards& order) { prepare_shards(self, order); },
          [self](DropShards) { self->state.shards.remove(); },
          [self](const StatePart& part) { store_part(self, part); },
          [self](const WriteCheckpoint& order) { write_order(self, order); },
          [&state](const EpochEvaluated& done) {
            state.keeper->on_validation(done.epoch, done.evaluation);
          }};
}

}  // namespace grapevine
