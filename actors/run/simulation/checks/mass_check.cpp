#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

// Push-sum (Assran et al. 2019, Alg. 1): a rank begins with the weight 1, gives shares of it away
// and gains those that arrive.
class MassCheck final : public RunCheck {
 public:
  explicit MassCheck(const CheckedRun& run)
      : RunCheck("mass", run),
        weight_(static_cast<std::size_t>(run.workers), 1.0),
        steps_since_loss_(weight_.size(), 0) {}

  void on_sent(Timestamp, const Envelope& message, std::uint64_t) override {
    const auto* share = std::get_if<Share>(&message.payload);
    if (share != nullptr && run().gives_sums) raise(edge_of(message).given, share->w);
    if (share == nullptr || !follows()) return;
    double& weight = weight_[static_cast<std::size_t>(message.from)];
    if (!(share->w >= 0) || share->w > weight + kRounding)
      report(fmt::format("rank {} gives away the weight {} in round {}, and has {}", message.from,
                         share->w, share->round, weight));
    weight -= share->w;
  }

  void on_delivered(Timestamp, const Envelope& message) override {
    const auto* share = std::get_if<Share>(&message.payload);
    if (share != nullptr && run().gives_sums) raise(edge_of(message).arrived, share->w);
    if (share != nullptr && follows()) weight_[static_cast<std::size_t>(message.to)] += share->w;
  }

  void on_lost(Timestamp, const Envelope&) override { loses_ = true; }

  void on_detached(Timestamp, Rank) override {
    ++losses_;
    std::fill(steps_since_loss_.begin(), steps_since_loss_.end(), 0);
  }

  // It shares the weight of another rank.
  void on_returned(Timestamp at, Rank rank) override { on_detached(at, rank); }
  void on_joined(Timestamp at, Rank rank) override { on_detached(at, rank); }

  void on_record(const TraceRecord& record) override {
    if (record.kind == EventKind::step_done && record.rank < run().workers)
      ++steps_since_loss_[static_cast<std::size_t>(record.rank)];
  }

  void on_end(const RunResult& result) override {
    if (result.error || run().servers > 0) return;
    // After a change of members the debts of the old edges are no weight of this view.
    if (loses_ && (losses_ > 0 || !run().gives_sums)) return;
    const auto members = static_cast<double>(run().workers) -
                         static_cast<double>(result.lost.size() + result.vacant.size());
    const double owed = loses_ ? owed_at_the_end() : 0;
    if (settled(result) && std::abs(result.weight_sum + owed - members) > kRounding * members)
      report(fmt::format("the weights of {} ranks sum to {} at the end{}", members,
                         result.weight_sum,
                         loses_ ? fmt::format(", and lost messages owe {}", owed) : ""));
  }

 private:
  static constexpr double kRounding = 1e-6;

  // Of running sums (algorithms/roles/gossip/sums_mixer.cpp), which only grow.
  struct Edge {
    double given = 0, arrived = 0;
  };

  Edge& edge_of(const Envelope& message) { return edges_[{message.from, message.to}]; }
  static void raise(double& sum, double to) { sum = std::max(sum, to); }

  // The last message of an edge, too, may be lost: no later one makes up for it.
  double owed_at_the_end() const {
    double owed = 0;
    for (const auto& [ends, edge] : edges_) owed += edge.given - edge.arrived;
    return owed;
  }

  // A change of members gives all ranks new weights, of which no message tells.
  bool follows() const { return run().gives_weight && losses_ == 0; }

  // Ranks that are lost while the others finish take their weight with them.
  bool settled(const RunResult& result) const {
    for (std::size_t rank = 0; rank < steps_since_loss_.size(); ++rank)
      if (losses_ > 0 && !is_missing(result, rank) && steps_since_loss_[rank] < 2) return false;
    return true;
  }

  std::vector<double> weight_;
  std::vector<std::int64_t> steps_since_loss_;
  std::map<std::pair<Rank, Rank>, Edge> edges_;
  int losses_ = 0;      // of ranks, returns, and ranks that come
  bool loses_ = false;  // a message was lost
};

}  // namespace

std::unique_ptr<RunCheck> make_mass_check(const CheckedRun& run) {
  return std::make_unique<MassCheck>(run);
}

}  // namespace grapevine
