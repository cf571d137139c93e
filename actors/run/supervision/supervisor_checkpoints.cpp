// The checkpoints of a run: the messages of the supervisor's CheckpointRounds.
#include "actors/record/resume_hint.hpp"
#include "actors/record/shards/shard_folder.hpp"
#include "actors/run/supervisor.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

// `cut`: that checkpoints_ has begun.
void SupervisorState::begin_checkpoint(std::int64_t cut) {
  // Progress is no longer measured in steps: the cut has its own timeout.
  if (stage_ == Stage::draining) last_news_ = now();
  if (crew_.processes() == 1) return crew_.send_to_ranks(TakeSnapshot{cut, ""});
  const std::string shards = shard_folder(config_.checkpoint_folder, cut).string();
  crew_.prepare_shards(cut, shards);
  // The Peer of the first of them passes states on. Its loss is a change of members, which gives up
  // the cut.
  const std::vector<Rank> receivers = members_.remaining_ranks_of(0);
  crew_.send_to_ranks(TakeSnapshot{cut, shards, receivers.empty() ? 0 : receivers.front()});
}

void SupervisorState::begin_final_checkpoint(const std::string& name) {
  begin_checkpoint(checkpoints_.begin_final(name, now()));
}

// A rank that is lost may still run; its state is of no checkpoint.
void SupervisorState::on_snapshot(RankSnapshot& snapshot) {
  if (members_.is_lost(snapshot.rank)) return;
  hear(snapshot.rank);
  last_news_ = now();
  auto write = checkpoints_.add(snapshot, members_, last_news_);
  if (!write) return;
  write->former = progress_.former_lives(members_);
  write->batches = batches_so_far_;
  write->lost_batches = view_.batches_of(members_.lost());
  write->settings = settings_;
  if (scheduled_ < config_.schedule.size()) write->next_change = config_.schedule[scheduled_].epoch;
  crew_.write(std::move(*write));
}

void SupervisorState::on_stored(const StateStored& stored) {
  RankSnapshot snapshot{
      stored.id, stored.rank, stored.step, {}, FileMark{stored.bytes, stored.crc32}};
  on_snapshot(snapshot);
}

// Of a validation, of a file, or of a part of a state.
void SupervisorState::on_progress() {
  last_news_ = now();
  checkpoints_.note_part(last_news_);
}

// The folder of its shards is of no use any more.
void SupervisorState::cancel_checkpoint() {
  if (checkpoints_.cutting() && crew_.processes() > 1) crew_.drop_shards();
  checkpoints_.cancel();
}

// A state of the view before is of no use beside one of the view to come.
void SupervisorState::interrupt_checkpoint() {
  if (checkpoints_.cutting() && crew_.processes() > 1) crew_.drop_shards();
  checkpoints_.interrupt();
}

void SupervisorState::resume_checkpoint() {
  if (!checkpoints_.idle() || is_changing()) return;
  if (auto name = checkpoints_.take_postponed())
    begin_checkpoint(checkpoints_.begin(std::move(*name), now()));
}

// A lost snapshot must not prevent later checkpoints.
void SupervisorState::give_up_checkpoint() {
  config_.observer->on_warning("a checkpoint is given up: no state came from " +
                               checkpoints_.missing(members_) + " for " +
                               seconds_text(config_.timeout));
  abandon_checkpoint();
}

// A failed checkpoint does not end training, and the cause may be over until the next one.
void SupervisorState::on_snapshot_refused(const SnapshotRefused& refused) {
  if (!checkpoints_.awaits(refused.id) || members_.is_lost(refused.rank)) return;
  config_.observer->on_warning("this checkpoint is not written: " + one_line(refused.reason));
  abandon_checkpoint();
}

void SupervisorState::abandon_checkpoint() {
  cancel_checkpoint();
  end_if_finished();
}

void SupervisorState::on_written(const CheckpointWritten& written) {
  last_news_ = now();
  checkpoints_.end_writing();
  if (!written.error.empty()) return fail({Errc::io, "checkpoint: " + written.error});
  result_.checkpoint = written.path;
  report_resume_from(run_folder_of(written.path));
  config_.observer->on_checkpoint(written.path);
  // The next run must not resume from a checkpoint after a failure.
  if (stage_ == Stage::draining && stopping_ && checkpoints_.final_due())
    return begin_final_checkpoint("");
  if (stage_ == Stage::running) resume_checkpoint();
  end_if_finished();
}

// Other processes need the path if process 0 is lost.
void SupervisorState::report_resume_from(const std::string& path) {
  crew_.send_to_processes(ResumeFrom{path});
}

void SupervisorState::on_checkpoint_requested() {
  if (crew_.empty()) return;  // no rank trains yet: there is no state to save
  if (stage_ != Stage::running) return;
  if (!checkpoints_.enabled())
    return config_.observer->on_warning("no checkpoint: the run has no output folder");
  if (preserves_previous_run())
    return config_.observer->on_warning(
        "no checkpoint: no step was taken yet, and the folder holds another run's");
  if (is_changing()) return checkpoints_.postpone("");
  if (checkpoints_.idle()) begin_checkpoint(checkpoints_.begin("", now()));
}

// A run without a step must not replace the results of another run.
bool SupervisorState::preserves_previous_run() const {
  return config_.output_in_use && !progress_.has_steps();
}

// The folder with what --resume takes; empty: there is none.
std::string SupervisorState::last_resumable() const {
  return result_.checkpoint.empty() ? config_.resumed_from : run_folder_of(result_.checkpoint);
}

std::string SupervisorState::resume_hint_now() const {
  const bool first_is_written = result_.checkpoint.empty() && checkpoints_.writing();
  return first_is_written ? writing_hint(config_.out) : resume_hint(last_resumable());
}

}  // namespace grapevine
