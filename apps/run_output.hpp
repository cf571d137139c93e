// RunOutput: what a run writes and shows while it goes on: metrics.csv and progress.
#pragma once
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/files.hpp"
#include "actors/runtime.hpp"
#include "apps/console.hpp"
#include "apps/monitoring/run_follower.hpp"
#include "apps/run_end.hpp"

namespace grapevine {

// Where a resumed run begins, and what is known of the run before it.
struct OutputBefore {
  std::vector<Step> first_steps;  // by rank; empty: nothing came before
  Epoch epochs = 0;               // that are not validated again
  std::string rows;               // its metrics.csv
};

// The observer of a run. Called by the supervisor's actor; end() belongs to the main thread.
class RunOutput : public RunObserver {
 public:
  // The rows of the run before are kept, but for those that this run writes again.
  static Expected<std::shared_ptr<RunOutput>> create(const std::string& path,
                                                     const OutputBefore& before);

  // REQUIRES: before the run. `bar` may be null and outlives the run.
  void show_progress(ProgressBar* bar, std::int64_t total_steps, std::int64_t begun_steps);

  // REQUIRES: before the run.
  void before_first_step(std::function<void()> call) { before_first_step_ = std::move(call); }
  // REQUIRES: before the run.
  void add_follower(std::unique_ptr<RunFollower> follower);

  void on_step(const StepReport& report) override;
  void on_validation(Epoch epoch, const Evaluation& evaluation) override;
  void on_checkpoint(const std::string& path) override;
  void on_warning(const std::string& message) override;
  void on_end(RunResult result) override;

  // For the main thread.
  RunEnd& end() { return end_; }

  // After the run. Whether any rank has finished a step.
  bool begun() const { return begun_; }
  // After the run. Puts metrics.csv under its name.
  Expected<void> commit() { return file_.commit(); }
  bool has_losses() const { return !losses_.empty(); }
  // Mean training loss of the last 20 logged steps of each rank; NaN where there are none.
  double final_loss() const;

 private:
  RunOutput(AtomicFile file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  void keep_rows(const OutputBefore& before);
  void add_loss(Rank rank, double loss);
  void renew();

  static constexpr std::size_t kLossWindow = 20;

  AtomicFile file_;
  const std::string path_;
  ProgressBar* bar_ = nullptr;
  Progress progress_;
  std::map<Rank, std::deque<double>> losses_;
  std::vector<std::unique_ptr<RunFollower>> followers_;
  std::function<void()> before_first_step_;
  bool begun_ = false;
  std::map<Epoch, Step> epoch_ends_;  // rank 0's last step of each epoch
  Step newest_step_ = 0;              // of rank 0
  RunEnd end_;
};

}  // namespace grapevine
