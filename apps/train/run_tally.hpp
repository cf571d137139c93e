// RunTally: the figures for the last message of a run, collected during the run.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "actors/record/goodput.hpp"
#include "apps/console/text/progress_bar.hpp"
#include "apps/train/run_end.hpp"

namespace grapevine {

// The newest losses of each rank.
class RecentLosses {
 public:
  void add(Rank rank, double loss);
  void remove(Rank rank) { losses_.erase(rank); }
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

  // `start`: where a resumed run begins, in steps of all workers; its losses before that;
  // `workers`: what is shown are the steps of each.
  RunTally(RunProgress start, RecentLosses losses, Show show, std::int64_t workers = 1)
      : progress_(std::move(start)),
        losses_(std::move(losses)),
        show_(std::move(show)),
        workers_(workers) {}

  // A line for each validation. REQUIRES: before the run.
  void tell_validations(std::function<void(std::string)> say) { say_ = std::move(say); }
  // Called once all processes have joined; must not wait. REQUIRES: before the run.
  void tell_begin(std::function<void()> say) { say_begun_ = std::move(say); }
  // Shown until the first step. REQUIRES: before the run.
  void begin_phase(const std::string& phase);

  // REQUIRES: before the run. After so many validations in a row without a better one the run is to
  // stop; 0: never.
  void stop_after(std::int64_t validations) { most_without_better_ = validations; }
  // REQUIRES: before the run. The validations of the run that this one continues count; whether the
  // run is to stop, its own ones say.
  void begin_after(const std::map<Epoch, Evaluation>& earlier);
  bool wants_stop() const override { return wants_stop_; }

  // REQUIRES: before the run. Training ends after RunProgress::epochs: once ranks have come or
  // gone, each takes another number of steps than was planned.
  void end_by_epochs() { by_epochs_ = true; }

  void on_begun() override {
    if (say_begun_) say_begun_();
  }
  void on_step(const StepReport& report) override;
  void on_rank_lost(Rank rank) override;
  void on_rank_returned(Rank /*rank*/) override { members_changed_ = true; }
  void on_rank_joined(Rank /*rank*/) override { members_changed_ = true; }
  // Another algorithm names the progress from then on.
  void on_changed(const LiveSettings& changed) override {
    if (const auto found = changed.find(kAlgorithmSetting); found != changed.end())
      progress_.label = found->second;
  }
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
  std::map<Rank, Step> steps_;  // that each of the ranks that train has taken
  Step sum_of_steps_ = 0;
  RecentLosses losses_;
  Goodput goodput_;
  const Show show_;
  const std::int64_t workers_;
  std::function<void(std::string)> say_;  // may be null
  std::function<void()> say_begun_;       // may be null
  void show() const;
  void judge(const Evaluation& evaluation);
  bool begun_ = false;
  bool by_epochs_ = false, members_changed_ = false;
  std::int64_t most_without_better_ = 0;
  std::int64_t without_better_ = 0;
  std::optional<Evaluation> best_;
  std::atomic<bool> wants_stop_{false};
};

}  // namespace grapevine
