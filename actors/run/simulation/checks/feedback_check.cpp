#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "actors/run/simulation/checks/entry_sample.hpp"
#include "actors/run/simulation/run_check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

constexpr std::uint64_t kEntryStream = 0x656e74727973;  // messages/random.hpp: one purpose each

// e <- e + g; what is sent leaves e (Seide et al. 2014; Karimireddy et al. 2019), followed number
// by number beside the run: all of a small model, a sample of the numbers of a large one.
class FeedbackCheck final : public RunCheck {
 public:
  explicit FeedbackCheck(const CheckedRun& run)
      : RunCheck("feedback", run), ranks_(static_cast<std::size_t>(run.workers)) {}

  void on_begin(const FrozenTensor& parameters) override {
    if (!run().feeds_back) return;
    d_ = parameters.numel();
    const std::int64_t most = std::max(kFewest, run().most_entries / std::max(1, run().workers));
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::uint64_t seed = mix_seed(mix_seed(run().seed, kEntryStream), rank);
      ranks_[rank].sample = EntrySample(d_, most, seed);
      ranks_[rank].held.assign(ranks_[rank].sample.size(), 0);
    }
  }

  void on_gradient(Rank rank, Step, const FrozenTensor& value) override {
    if (!follows()) return;
    OfRank& own = of(rank);
    if (value.numel() != d_)
      return report(fmt::format("rank {} has a gradient of {} numbers for {} parameters", rank,
                                value.numel(), d_));
    const auto* g = value.data<float>();
    for (std::size_t slot = 0; slot < own.held.size(); ++slot)
      own.held[slot] += g[own.sample.entry(slot)];
  }

  // The first message of each operation has the rank's own values, the others pass some on.
  void on_sent(Timestamp, const Envelope& message, std::uint64_t) override {
    const auto* chunk = std::get_if<PackedChunk>(&message.payload);
    if (chunk == nullptr || !follows() || message.from >= run().workers) return;
    OfRank& rank = of(message.from);
    if (chunk->sender != message.from || chunk->operation <= rank.newest) return;
    rank.newest = chunk->operation;
    const auto* indices = chunk->data.indices.data<std::int32_t>();
    const auto* values = chunk->data.values.data<float>();
    for (std::int64_t i = 0; i < chunk->data.values.numel(); ++i)
      leaves(message.from, rank, indices[i], values[i]);
  }

  // After the loss of a rank the others give their values of the open exchange again.
  void on_detached(Timestamp, Rank) override { all_stay_ = false; }
  void on_joined(Timestamp, Rank) override { all_stay_ = false; }

 private:
  static constexpr double kRounding = 1e-4;
  static constexpr double kSmallest = 1e-6;
  static constexpr std::int64_t kFewest = 64;  // entries of a rank

  struct OfRank {
    EntrySample sample;
    std::vector<double> held;  // e, at the entries of the sample
    std::int64_t newest = -1;  // operation
  };

  bool follows() const { return run().feeds_back && all_stay_; }
  OfRank& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void leaves(Rank number, OfRank& rank, std::int32_t index, double value) {
    if (index < 0 || index >= d_)
      return report(fmt::format("rank {} sends {} for parameter {} of {} in operation {}", number,
                                value, index, d_, rank.newest));
    const std::size_t slot = rank.sample.slot_of(index);
    if (slot == rank.held.size()) return;
    double& held = rank.held[slot];
    if (std::abs(value - held) > kRounding * std::abs(held) + kSmallest)
      report(
          fmt::format("rank {} sends {} for parameter {} in operation {}, its gradients since "
                      "the last time amount to {}",
                      number, value, index, rank.newest, held));
    held = 0;
  }

  std::vector<OfRank> ranks_;
  std::int64_t d_ = 0;  // parameters
  bool all_stay_ = true;
};

}  // namespace

std::unique_ptr<RunCheck> make_feedback_check(const CheckedRun& run) {
  return std::make_unique<FeedbackCheck>(run);
}

}  // namespace grapevine
