// Sampler: which samples each rank takes at each step.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

enum class Batching { shuffled, by_length };

// A pure function of what it was made of. Shuffled: each epoch visits the samples in an
// order of its own; step k of the epoch gives rank r the positions [(k·n + r)·B, +B) of that order.
// So the batches of all ranks at one step, put together by rank, are the batch of a single rank
// with batch size n·B: data-parallel training equals large-batch training exactly. The last
// train_size mod (n·B) samples of an order are left out of its epoch.
//
// By length, for samples that lie in the order of their length: a bucket is kBucketBatches·B
// samples in a row, shuffled anew in each epoch, and a batch is B of one bucket. The batches of all
// buckets are given to steps and ranks in a random order, so that at one step ranks have batches of
// different lengths. The samples that an epoch leaves out are consecutive, at a random position.
//
// The order is not stored: position -> sample is a keyed permutation (a Feistel network over the
// next power of four, walked until it falls inside, after Black & Rogaway 2002, "Ciphers with
// arbitrary finite domains"), so that a thousand ranks cost no memory and any step is reached at
// once.
//
// Immutable: thread-safe, cheap to copy.
class Sampler {
 public:
  static constexpr std::int64_t kBucketBatches = 4;

  // Errors (bad_input): a size < 1; batch_size · ranks > train_size.
  static Expected<Sampler> make(std::uint64_t seed, std::int64_t train_size, std::int64_t ranks,
                                std::int64_t batch_size, Batching batching = Batching::shuffled);

  std::int64_t batch_size() const { return batch_size_; }
  std::int64_t steps_per_epoch() const { return train_size_ / (ranks_ * batch_size_); }
  Epoch epoch_of(Step step) const { return step / steps_per_epoch(); }

  // The samples of `rank` at `step`, counted over all epochs, from 0. [batch_size()]
  // REQUIRES: 0 <= rank < ranks, step >= 0.
  std::vector<std::int64_t> indices(Rank rank, Step step) const;

  // All batches of training in one sequence: that of `rank` at `step` is step·n + rank. Where the
  // number of ranks changes, others share the rest of it (Deal).
  std::int64_t ranks() const { return ranks_; }
  std::int64_t batches_per_epoch() const { return steps_per_epoch() * ranks_; }
  // The samples of a batch, from 0. [batch_size()]
  std::vector<std::int64_t> samples_of(std::int64_t batch) const;

  // The seed of the epoch's augmentations, the same on all ranks. Never 0.
  std::uint64_t augment_seed(Step step) const { return augment_seed_of(step * ranks_); }
  // Of the epoch of a batch.
  std::uint64_t augment_seed_of(std::int64_t batch) const;

 private:
  static constexpr int kFeistelRounds = 6;
  using RoundKeys = std::array<std::uint64_t, kFeistelRounds>;

  Sampler() = default;
  static RoundKeys round_keys(std::uint64_t key);
  static std::int64_t permuted(std::int64_t position, std::int64_t size, const RoundKeys& keys);
  std::vector<std::int64_t> indices_by_length(std::int64_t batch, std::uint64_t epoch_key) const;

  std::uint64_t seed_ = 0;
  std::int64_t train_size_ = 0;
  std::int64_t ranks_ = 0;
  std::int64_t batch_size_ = 0;
  Batching batching_ = Batching::shuffled;
};

}  // namespace grapevine
