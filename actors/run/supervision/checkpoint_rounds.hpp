// CheckpointRounds: the checkpoints of a run, one after the other.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "actors/protocol/record.hpp"
#include "actors/run/supervision/run_members.hpp"
#include "messages/time.hpp"

namespace grapevine {

struct CheckpointPlan {
  bool enabled = false;     // false: no folder to write to
  double every_epochs = 0;  // 0: only at the end and on request
  double total_epochs = 0;
  double resumed_least = 0;  // epochs of the slowest rank in the checkpoint of a resumed run
};

// A checkpoint is a cut, for which each rank sends its state, and then the writing of those states.
// One is made at a time. A cut has a timeout of its own, because no steps need be taken during it.
// `now`: of the caller's clock. Sends nothing. Not thread-safe.
class CheckpointRounds {
 public:
  explicit CheckpointRounds(const CheckpointPlan& plan = {});

  // Epochs of the whole run, of which the last has a checkpoint of its own: members have changed.
  void set_total(double epochs) { plan_.total_epochs = epochs; }
  // No further cut begins; one in progress is cancelled.
  void disable();
  bool enabled() const { return plan_.enabled; }

  // Whether due() could give a name at all: checkpoints by epochs, and none is made now.
  bool may_be_due() const { return plan_.enabled && plan_.every_epochs > 0 && idle(); }
  // All ranks have done so many epochs: the name of the checkpoint that is due for that, which is
  // then never due again. That of the end of an epoch has the epoch's number, which its validation
  // judges. Empty: it is named after its slowest rank's step. None while another checkpoint is
  // made.
  std::optional<std::string> due(double epochs);

  // A cut; returns its id, which is greater than those of earlier cuts.
  // `name`: of the checkpoint; empty: after its slowest rank's step.
  std::int64_t begin(std::string name, Timestamp now);
  // The same for the last checkpoint of the run, which is due once.
  std::int64_t begin_final(std::string name, Timestamp now);
  void skip_final() { final_begun_ = true; }
  bool final_due() const { return plan_.enabled && !final_begun_; }
  // The last one was begun, and given up.
  bool final_lost() const { return final_lost_; }

  // The checkpoint to write, with the last missing state. States for another cut are ignored, and
  // of a rank the first one counts.
  std::optional<WriteCheckpoint> add(RankSnapshot& snapshot, const RunMembers& members,
                                     Timestamp now);
  // A part of a state has come, of any rank.
  void note_part(Timestamp now) { news_ = now; }
  // Whether the cut in progress has id `cut`.
  bool awaits(std::int64_t cut) const { return cutting_ && cut == id_; }
  // Whether the cut has received no state for longer than `timeout`.
  bool overdue(Timestamp now, Duration timeout) const { return cutting_ && now - news_ > timeout; }
  void cancel();
  // A change of members interrupts the cut in progress, if any: it is due again.
  void interrupt();
  // One that is asked for during such a change. The name of an interrupted one stays.
  void postpone(std::string name) {
    if (!postponed_) postponed_ = std::move(name);
  }
  // The name of the checkpoint that is to be begun now, after the change; nothing: none is due.
  std::optional<std::string> take_postponed() { return std::exchange(postponed_, std::nullopt); }
  // The longest time from the beginning of a cut to its last state so far; none: no cut is
  // complete.
  std::optional<Duration> longest_cut() const { return longest_cut_; }
  // The id of the newest cut; 0: none.
  std::int64_t newest() const { return id_; }
  // The remaining ranks without a state in this cut: "rank 1, 3".
  std::string missing(const RunMembers& members) const { return members.missing_in(snapshots_); }
  void end_writing() { writing_ = false; }

  bool cutting() const { return cutting_; }
  bool writing() const { return writing_; }
  bool idle() const { return !cutting_ && !writing_; }

 private:
  CheckpointPlan plan_;
  std::int64_t done_ = 0;  // multiples of every_epochs that were due
  bool final_begun_ = false;
  bool final_lost_ = false;

  bool cutting_ = false;
  bool writing_ = false;
  std::int64_t id_ = 0;
  std::string name_;
  std::optional<std::string> postponed_;
  Timestamp begun_{0};  // the cut
  Timestamp news_{0};   // the beginning of the cut, or its newest state
  std::optional<Duration> longest_cut_;
  std::map<Rank, RankSnapshot> snapshots_;
};

}  // namespace grapevine
