#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "actors/run/simulation/run_check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace {

constexpr std::uint64_t kProbeStream = 0x70726f6265;  // messages/random.hpp: one purpose each

// A vector is known by its product with one direction of signs.
class SumCheck final : public RunCheck {
 public:
  explicit SumCheck(const CheckedRun& run)
      : RunCheck("sum", run), weight_(static_cast<std::size_t>(run.workers), 1.0) {}

  void on_begin(const FrozenTensor& parameters) override {
    if (is_known()) start_ = along(parameters);
  }

  void on_gradient(Rank rank, Step step, const FrozenTensor& value) override {
    if (is_known()) gradients_[{rank, step}] = along(value);
  }

  void on_sent(Timestamp, const Envelope& message, std::uint64_t) override {
    if (const auto* share = std::get_if<Share>(&message.payload))
      weight_[static_cast<std::size_t>(message.from)] -= share->w;
  }

  void on_delivered(Timestamp, const Envelope& message) override {
    if (const auto* share = std::get_if<Share>(&message.payload))
      weight_[static_cast<std::size_t>(message.to)] += share->w;
  }

  void on_detached(Timestamp, Rank) override { all_stay_ = false; }
  void on_joined(Timestamp, Rank) override { all_stay_ = false; }

  void on_record(const TraceRecord& record) override {
    if (!is_known()) return;
    if (record.kind == EventKind::committed) applied_.insert({record.origin, record.origin_step});
    if (record.kind != EventKind::reduced) return;
    // Done again by the members of a later view: that result is in the models.
    Operation& operation = operations_[record.operation];
    if (record.time_ns >= operation.time_ns) operation = {record.time_ns, record.members};
  }

  void on_end(const RunResult& result) override {
    if (result.error || !is_known() || !result.z.defined()) return;
    const bool means = run().gradient_sums == GradientSums::means;
    // With weights other than 1 the mean model is not the mean of the numerators; lost ranks take
    // weight away.
    const bool all_stay = all_stay_ && result.vacant.empty();
    if (!means && (!all_stay || !weighs_one())) return;
    const Moved moved = means ? by_operations() : by_gradients();
    const double found = along(result.z) - start_;
    const double rounding = kRounding * (std::abs(start_) + moved.length) + kSmallest;
    if (std::abs(found - moved.by) > rounding)
      report(
          fmt::format("the mean model has moved by {} along the probe, the applied gradients "
                      "amount to {}",
                      found, moved.by));
  }

 private:
  static constexpr double kRounding = 1e-4;
  static constexpr double kSmallest = 1e-9;

  struct Operation {
    std::int64_t time_ns = 0;
    std::vector<Rank> members;
  };
  struct Moved {
    double by = 0;
    double length = 0;  // of all parts
  };

  bool is_known() const { return run().gradient_sums != GradientSums::unknown; }

  bool weighs_one() const {
    for (const double weight : weight_)
      if (std::abs(weight - 1) > kRounding) return false;
    return true;
  }

  double along(const FrozenTensor& vector) {
    const auto* values = vector.data<float>();
    double sum = 0;
    for (std::int64_t i = 0; i < vector.numel(); ++i)
      sum +=
          mix_seed(kProbeStream, static_cast<std::uint64_t>(i)) >> 63 != 0 ? values[i] : -values[i];
    return sum;
  }

  void add(Moved& moved, Rank rank, Step step, double part) const {
    const auto found = gradients_.find({rank, step});
    if (found == gradients_.end()) return;
    moved.by -= part * found->second;
    moved.length += part * std::abs(found->second);
  }

  Moved by_operations() const {
    Moved moved;
    for (const auto& [step, operation] : operations_)
      for (const Rank rank : operation.members)
        add(moved, rank, step, run().rate / static_cast<double>(operation.members.size()));
    return moved;
  }

  Moved by_gradients() const {
    Moved moved;
    for (const auto& [rank, step] : applied_) add(moved, rank, step, run().rate / run().workers);
    return moved;
  }

  double start_ = 0;
  std::map<std::pair<Rank, Step>, double> gradients_;
  std::set<std::pair<Rank, Step>> applied_;
  std::map<std::int64_t, Operation> operations_;  // by step
  std::vector<double> weight_;                    // of push-sum, as messages move it
  bool all_stay_ = true;
};

}  // namespace

std::unique_ptr<RunCheck> make_sum_check(const CheckedRun& run) {
  return std::make_unique<SumCheck>(run);
}

}  // namespace grapevine
