// The batches of training that no rank has taken, or ranks have taken more than once, as results
// and checkpoints have them. BatchAccount (actors/run/supervision/) counts them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
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

// What lost ranks had taken and no tally has yet. A checkpoint has it, as it has no state of these
// ranks. Batches are numbered from the start of training.
struct BatchesOfLost {
  static constexpr std::int64_t kMostAhead = std::int64_t{1} << 20;  // that are counted exactly

  std::vector<BatchRun> ahead;         // taken by members of earlier views, and to be dealt anew
  std::map<Rank, std::int64_t> taken;  // by members of the present view, in it
};

}  // namespace grapevine
