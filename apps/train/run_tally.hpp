// RunTally: the figures for the last message of a run, collected during the run.
#pragma once
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "actors/record/goodput.hpp"
#include "apps/console/console.hpp"
#include "apps/train/run_end.hpp"

namespace grapevine {

// The newest losses of each rank.
class RecentLosses {
 public:
  void add(Rank rank, double loss);
  bool empty() const { return losses_.empty(); }
  // Over the last 20 logged steps of each rank; NaN where there are none.
  double mean() const;

 private:
  static constexpr std::size_t kWindow = 20;
  std::map<Rank, std::deque<double>> losses_;
};

// The observer of the head. It writes nothing, so that it never waits.
class RunTally : public RunEnd {
 public:
  // Gets the progress after each step, on any thread; must not wait.
  using Show = std::function<void(const RunProgress&)>;

  // `start`: where a resumed run begins; `losses`: of the steps before.
  RunTally(RunProgress start, RecentLosses losses, Show show)
      : progress_(start), losses_(std::move(losses)), show_(std::move(show)) {}

  void on_step(const StepReport& report) override;
  void on_validation(Epoch epoch, const Evaluation& evaluation) override;
  void on_checkpoint(const std::string& path) override;

  // After the run. Whether any rank has finished a step.
  bool begun() const { return begun_; }
  // After the run. Of the steps of this run, without those before a resumed checkpoint.
  const Goodput& goodput() const { return goodput_; }
  // After the run.
  const RecentLosses& losses() const { return losses_; }

 private:
  RunProgress progress_;
  RecentLosses losses_;
  Goodput goodput_;
  const Show show_;
  bool begun_ = false;
};

}  // namespace grapevine
