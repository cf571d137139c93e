// BatchAccount: which batches of training no rank has taken, and which ones were taken again.
//
// All batches are one sequence. The n members of a view share those from a first one on: in its
// i-th step of the view, i from 0, the member at position p takes batch first + i·n + p (Deal). A
// view ends at the step of the remaining member that has taken most; the next view begins behind
// it. What a slower member had not taken there is left out. What a lost member had taken behind it
// is dealt anew. Where training ends after a number of batches, a view may end behind the last one
// of these: no rank needs what is behind, and it does not count.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "actors/record/batch_tally.hpp"

namespace grapevine {

// Counts exactly as long as lost ranks are together at most BatchesOfLost::kMostAhead batches ahead
// of the others; what is beyond counts as taken again. Not thread-safe.
class BatchAccount {
 public:
  // `planned`: the batch behind the last one of training; none: the batches of each step that a
  // member has taken are planned.
  explicit BatchAccount(std::optional<std::int64_t> planned = std::nullopt) : planned_(planned) {}
  // Of a run that continues a checkpoint amid the view whose first batch is `first`: with its
  // BatchesOfLost::ahead. What is before `first`, of a damaged one, does not count.
  BatchAccount(std::optional<std::int64_t> planned, std::vector<BatchRun> ahead,
               std::int64_t first);

  // A member of a view: the batches that it has taken in it. Of a lost one: those whose steps it
  // has reported, since nobody knows of more.
  struct Share {
    std::int64_t taken = 0;
    bool remains = true;
  };

  // The view whose members, by position, shared the batches from `first` on ends; the next one
  // begins with the batch that is returned.
  std::int64_t end_view(std::int64_t first, const std::vector<Share>& shares);
  // The last view ends with training.
  void end_training(std::int64_t first, const std::vector<Share>& shares);

  BatchTally tally(const BatchEpochs& epochs) const;
  // What lost ranks have taken of the batches that are not dealt yet; none is in the tally.
  const std::vector<BatchRun>& ahead() const { return ahead_; }

 private:
  void leave_out(std::int64_t first, std::int64_t members, std::int64_t position,
                 std::int64_t from_step, std::int64_t to_step,
                 const std::vector<std::int64_t>& but);
  std::map<std::int64_t, std::vector<std::int64_t>> count_ahead_below(
      std::int64_t first, const std::vector<Share>& shares, std::int64_t end);
  void add_ahead(std::int64_t first, const std::vector<Share>& shares, std::int64_t steps);
  void add_ahead(BatchRun run);

  std::optional<std::int64_t> planned_;
  std::vector<BatchRun> left_out_;
  std::vector<std::int64_t> again_;
  std::int64_t again_beyond_ = 0;  // that are not in it
  std::vector<BatchRun> ahead_;    // one of each lost rank that was ahead
  std::int64_t ahead_count_ = 0;   // of its batches
};

}  // namespace grapevine
