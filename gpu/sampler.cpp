#include "gpu/sampler.hpp"

#include <algorithm>
#include <string>

#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

// Purposes: keep the streams of one seed apart (messages/random.hpp).
constexpr std::uint64_t kOrderStream = 0x6f72646572;
constexpr std::uint64_t kAugmentStream = 0x61756d67;

Error too_large(std::int64_t train_size, std::int64_t ranks, std::int64_t batch_size) {
  const std::string numbers = "batch size " + std::to_string(batch_size) + " on " +
                              std::to_string(ranks) + " ranks, " + std::to_string(train_size) +
                              " training samples";
  if (ranks > train_size)
    return bad_input("batch larger than the shard: " + numbers + ": use at most " +
                     std::to_string(train_size) + " ranks");
  return bad_input("batch larger than the shard: " + numbers +
                   ": the largest batch size that fits is " + std::to_string(train_size / ranks));
}

}  // namespace

Expected<Sampler> Sampler::make(std::uint64_t seed, std::int64_t train_size, std::int64_t ranks,
                                std::int64_t batch_size) {
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
  while (((train_size - 1) >> (2 * sampler.half_bits_)) != 0) ++sampler.half_bits_;
  return sampler;
}

std::vector<std::int64_t> Sampler::indices(Rank rank, Step step) const {
  GRAPEVINE_CHECK(rank >= 0 && rank < ranks_ && step >= 0, "rank ", rank, ", step ", step);
  const RoundKeys keys = round_keys(epoch_of(step));
  const std::int64_t first = ((step % steps_per_epoch()) * ranks_ + rank) * batch_size_;
  std::vector<std::int64_t> samples(static_cast<std::size_t>(batch_size_));
  for (std::int64_t i = 0; i < batch_size_; ++i)
    samples[static_cast<std::size_t>(i)] =
        static_cast<std::int64_t>(sample_at(static_cast<std::uint64_t>(first + i), keys));
  return samples;
}

std::uint64_t Sampler::augment_seed(Step step) const {
  const auto epoch = static_cast<std::uint64_t>(epoch_of(step));
  return std::max<std::uint64_t>(1, mix_seed(mix_seed(seed_, kAugmentStream), epoch));
}

Sampler::RoundKeys Sampler::round_keys(Epoch epoch) const {
  const std::uint64_t key =
      mix_seed(mix_seed(seed_, kOrderStream), static_cast<std::uint64_t>(epoch));
  RoundKeys keys;
  for (std::size_t round = 0; round < keys.size(); ++round) keys[round] = mix_seed(key, round);
  return keys;
}

std::uint64_t Sampler::sample_at(std::uint64_t position, const RoundKeys& keys) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  // Fewer than four tries on average: the domain is at most four times the number of samples.
  do {
    std::uint64_t left = position >> half_bits_;
    std::uint64_t right = position & mask;
    for (const std::uint64_t key : keys) {
      const std::uint64_t next = left ^ (mix_seed(key, right) & mask);
      left = right;
      right = next;
    }
    position = (left << half_bits_) | right;
  } while (position >= static_cast<std::uint64_t>(train_size_));
  return position;
}

}  // namespace grapevine
