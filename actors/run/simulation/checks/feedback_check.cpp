#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

// e <- e + g; what is sent leaves e (Seide et al. 2014; Karimireddy et al. 2019), followed number
// by number beside the run.
class FeedbackCheck final : public RunCheck {
 public:
  explicit FeedbackCheck(const CheckedRun& run)
      : RunCheck("feedback", run), ranks_(static_cast<std::size_t>(run.workers)) {}

  void on_begin(const FrozenTensor& parameters) override {
    if (!run().feeds_back) return;
    for (OfRank& rank : ranks_) rank.held.assign(static_cast<std::size_t>(parameters.numel()), 0);
  }

  void on_gradient(Rank rank, Step, const FrozenTensor& value) override {
    if (!follows()) return;
    std::vector<double>& all = of(rank).held;
    if (value.numel() != static_cast<std::int64_t>(all.size()))
      return report(fmt::format("rank {} has a gradient of {} numbers for {} parameters", rank,
                                value.numel(), all.size()));
    const auto* g = value.data<float>();
    for (double& held : all) held += *g++;
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

  // What a lost rank had given is given again.
  void on_detached(Timestamp, Rank) override { all_stay_ = false; }

 private:
  static constexpr double kRounding = 1e-4;
  static constexpr double kSmallest = 1e-6;

  struct OfRank {
    std::vector<double> held;  // e
    std::int64_t newest = -1;  // operation
  };

  bool follows() const { return run().feeds_back && all_stay_; }
  OfRank& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void leaves(Rank number, OfRank& rank, std::int32_t index, double value) {
    if (index < 0 || static_cast<std::size_t>(index) >= rank.held.size())
      return report(fmt::format("rank {} sends {} for parameter {} of {} in operation {}", number,
                                value, index, rank.held.size(), rank.newest));
    double& held = rank.held[static_cast<std::size_t>(index)];
    if (std::abs(value - held) > kRounding * std::abs(held) + kSmallest)
      report(
          fmt::format("rank {} sends {} for parameter {} in operation {}, its gradients since "
                      "the last time amount to {}",
                      number, value, index, rank.newest, held));
    held = 0;
  }

  std::vector<OfRank> ranks_;
  bool all_stay_ = true;
};

}  // namespace

std::unique_ptr<RunCheck> make_feedback_check(const CheckedRun& run) {
  return std::make_unique<FeedbackCheck>(run);
}

}  // namespace grapevine
