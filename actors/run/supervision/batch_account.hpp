// BatchAccount: which batches of training no rank has taken, and which ones were taken again.
//
// All batches are one sequence. The n members of a view share those from a first one on: in its
// i-th step of the view, i from 0, the member at position p takes batch first + i·n + p (Deal). A
// view ends at the step of the remaining member that has taken most; the next view begins behind
// it. What a slower member had not taken there is left out. What a lost member had taken behind it
// is dealt anew.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

// The batches first, first + stride, …, `count` of them. REQUIRES: stride >= 1.
struct BatchRun {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t count = 0;
};

// How the sequence is divided into epochs. Epoch 0 begins `before` batches ahead of batch 0: not 0
// where steps had another size before the run was resumed. Batches of such steps have no number.
struct BatchEpochs {
  std::int64_t per_epoch = 1;  // >= 1
  std::int64_t before = 0;

  Epoch epoch_of(std::int64_t batch) const { return (batch + before) / per_epoch; }
  std::int64_t number_of(std::int64_t batch) const { return (batch + before) % per_epoch; }
};

// What a run reports of its batches. Each list is whole up to kMostNamed runs.
struct BatchTally {
  // Batches of one epoch; BatchRun::first is their number in it, from 0.
  struct Named {
    Epoch epoch = 0;
    BatchRun run;
  };
  static constexpr std::size_t kMostNamed = 64;

  std::int64_t left_out = 0;  // that no rank has taken
  std::int64_t again = 0;     // how often a batch was taken that a rank had taken before
  std::vector<Named> left_out_runs, again_runs;

  // Adds what came later.
  void merge(const BatchTally& later);
};

// Counts exactly as long as lost ranks are together at most kMostAhead batches ahead of the others;
// what is beyond counts as taken again. Not thread-safe.
class BatchAccount {
 public:
  static constexpr std::size_t kMostAhead = std::size_t{1} << 20;

  // A member of a view: the batches that it has taken in it. Of a lost one: those whose steps it
  // has reported, since nobody knows of more.
  struct Share {
    std::int64_t taken = 0;
    bool remains = true;
  };

  // The view whose members, by position, shared the batches from `first` on ends; the next one
  // begins with the batch that is returned.
  std::int64_t end_view(std::int64_t first, const std::vector<Share>& shares);
  // The last view ends with training. `planned`: the batch behind the last one of training; none:
  // the batches of each step that a member has taken were planned.
  void end_training(std::int64_t first, const std::vector<Share>& shares,
                    std::optional<std::int64_t> planned);

  BatchTally tally(const BatchEpochs& epochs) const;

 private:
  void leave_out(std::int64_t first, std::int64_t members, std::int64_t position,
                 std::int64_t from_step, std::int64_t to_step,
                 const std::vector<std::int64_t>& but);
  std::map<std::int64_t, std::vector<std::int64_t>> count_ahead_below(
      std::int64_t first, const std::vector<Share>& shares, std::int64_t end);
  void add_ahead(std::int64_t first, const std::vector<Share>& shares, std::int64_t steps);

  std::vector<BatchRun> left_out_;
  std::vector<std::int64_t> again_;    // at most kMostAhead
  std::int64_t again_beyond_ = 0;      // that are not in it
  std::map<std::int64_t, int> ahead_;  // taken by lost ranks, and dealt anew: by how many
};

}  // namespace grapevine
