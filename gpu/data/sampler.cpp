#include "gpu/data/sampler.hpp"

#include <algorithm>
#include <string>

#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

// Purposes: keep the streams of one seed apart (messages/random.hpp).
constexpr std::uint64_t kOrderStream = 0x6f72646572;
constexpr std::uint64_t kAugmentStream = 0x61756d67;
constexpr std::uint64_t kBatchStream = 0x6261746368;
constexpr std::uint64_t kBucketStream = 0x6275636b6574;
constexpr std::uint64_t kGapStream = 0x676170;

Error too_large(std::int64_t train_size, std::int64_t ranks, std::int64_t batch_size) {
  const std::string numbers = "batch size " + std::to_string(batch_size) + " on " +
                              std::to_string(ranks) + " ranks, " + std::to_string(train_size) +
                              " training samples";
  if (ranks > train_size)
    return bad_input("fewer training samples than ranks: " + numbers + ": use at most " +
                     std::to_string(train_size) + " ranks");
  return bad_input("a rank's share of the training samples is smaller than a batch: " + numbers +
                   ": the largest batch size that fits is " + std::to_string(train_size / ranks));
}

}  // namespace

Expected<Sampler> Sampler::make(std::uint64_t seed, std::int64_t train_size, std::int64_t ranks,
                                std::int64_t batch_size, Batching batching) {
  if (train_size < 1) return bad_input("the data set has no training samples: use another one");
  if (ranks < 1) return bad_input("ranks is " + std::to_string(ranks) + ": use at least 1");
  if (batch_size < 1)
    return bad_input("batch size is " + std::to_string(batch_size) + ": use at least 1");
  // Divided rather than multiplied: the product of two options may not fit 64 bits.
  if (batch_size > train_size / ranks) return too_large(train_size, ranks, batch_size);
  Sampler sampler;
  sampler.seed_ = seed;
  sampler.train_size_ = train_size;
  sampler.ranks_ = ranks;
  sampler.batch_size_ = batch_size;
  sampler.batching_ = batching;
  return sampler;
}

std::vector<std::int64_t> Sampler::indices(Rank rank, Step step) const {
  GRAPEVINE_CHECK(rank >= 0 && rank < ranks_ && step >= 0, "rank ", rank, ", step ", step);
  return samples_of(step * ranks_ + rank);
}

std::vector<std::int64_t> Sampler::samples_of(std::int64_t batch) const {
  GRAPEVINE_CHECK(batch >= 0, "batch ", batch);
  const std::int64_t epoch = batch / batches_per_epoch();
  batch %= batches_per_epoch();
  const std::uint64_t key =
      mix_seed(mix_seed(seed_, kOrderStream), static_cast<std::uint64_t>(epoch));
  if (batching_ == Batching::by_length) return indices_by_length(batch, key);
  const RoundKeys keys = round_keys(key);
  std::vector<std::int64_t> samples(static_cast<std::size_t>(batch_size_));
  for (std::int64_t i = 0; i < batch_size_; ++i)
    samples[static_cast<std::size_t>(i)] = permuted(batch * batch_size_ + i, train_size_, keys);
  return samples;
}

std::vector<std::int64_t> Sampler::indices_by_length(std::int64_t batch,
                                                     std::uint64_t epoch_key) const {
  const std::int64_t batches = steps_per_epoch() * ranks_;
  const std::int64_t chosen =
      permuted(batch, batches, round_keys(mix_seed(epoch_key, kBatchStream)));
  const std::int64_t bucket = chosen / kBucketBatches;
  const std::int64_t first = bucket * kBucketBatches * batch_size_;
  const std::int64_t used = batches * batch_size_;
  const std::int64_t size = std::min(kBucketBatches * batch_size_, used - first);
  const RoundKeys keys =
      round_keys(mix_seed(mix_seed(epoch_key, kBucketStream), static_cast<std::uint64_t>(bucket)));
  const auto gap = static_cast<std::int64_t>(mix_seed(epoch_key, kGapStream) %
                                             (static_cast<std::uint64_t>(used) + 1));
  std::vector<std::int64_t> samples(static_cast<std::size_t>(batch_size_));
  for (std::int64_t i = 0; i < batch_size_; ++i) {
    const std::int64_t position =
        first + permuted((chosen % kBucketBatches) * batch_size_ + i, size, keys);
    samples[static_cast<std::size_t>(i)] =
        position < gap ? position : position + train_size_ - used;
  }
  return samples;
}

std::uint64_t Sampler::augment_seed_of(std::int64_t batch) const {
  const auto epoch = static_cast<std::uint64_t>(batch / batches_per_epoch());
  return std::max<std::uint64_t>(1, mix_seed(mix_seed(seed_, kAugmentStream), epoch));
}

Sampler::RoundKeys Sampler::round_keys(std::uint64_t key) {
  RoundKeys keys;
  for (std::size_t round = 0; round < keys.size(); ++round) keys[round] = mix_seed(key, round);
  return keys;
}

std::int64_t Sampler::permuted(std::int64_t position, std::int64_t size, const RoundKeys& keys) {
  int half_bits = 1;  // 4^half_bits >= size
  while (((size - 1) >> (2 * half_bits)) != 0) ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  auto value = static_cast<std::uint64_t>(position);
  // Fewer than four tries on average: the domain is at most four times the number of samples.
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (const std::uint64_t key : keys) {
      const std::uint64_t next = left ^ (mix_seed(key, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

}  // namespace grapevine
