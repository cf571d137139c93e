// RunOutput: the files and figures of a run in progress: metrics.csv, TensorBoard, Prometheus.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/record/files.hpp"
#include "actors/run/reporter.hpp"
#include "apps/monitoring/run_follower.hpp"
#include "apps/train/row_file.hpp"
#include "apps/train/run_tally.hpp"

namespace grapevine {

// The first steps of a resumed run, and facts about the run before it.
struct OutputBefore {
  std::vector<Step> first_steps;  // by rank; empty: not a resumed run
  std::vector<Step> saved_steps;  // reported, by rank of the checkpoint, which may have had more
  Epoch epochs = 0;               // that are not validated again
  std::string rows;               // its metrics.csv
};

// Called by the Reporter, on its thread. metrics.csv grows at its end, by whole rows: whenever no
// further step waits, and to the disk with each checkpoint and validation. One that an earlier run
// has left is replaced at the first step.
class RunOutput : public RunReport {
 public:
  // The rows of the run before are kept, but for those that this run writes again and one that was
  // cut off. Errors (io): they cannot be written.
  static Expected<std::shared_ptr<RunOutput>> create(const std::string& path,
                                                     const OutputBefore& before);

  // REQUIRES: before the run.
  void before_first_step(std::function<void()> call) { before_first_step_ = std::move(call); }
  // Called with settings that have changed for all ranks, on the Reporter's thread. REQUIRES:
  // before the run.
  void when_changed(std::function<void(const LiveSettings&)> call) { changed_ = std::move(call); }
  // REQUIRES: before the run.
  void add_follower(std::unique_ptr<RunFollower> follower);
  // Of the rows that are kept. REQUIRES: before the run.
  const RecentLosses& kept_losses() const { return kept_losses_; }

  void on_step(const StepReport& report) override;
  void on_figures(const RankFigures& figures) override;
  void on_rank_lost(Rank rank) override;
  void on_rank_returned(Rank rank) override;
  void on_changed(const LiveSettings& changed) override;
  void on_validation(Epoch epoch, const Evaluation& evaluation) override;
  void on_checkpoint(const std::string& path) override;
  void on_warning(const std::string& message) override;
  void on_steps_lost(std::int64_t count) override;
  void on_idle() override;
  void on_end(RunResult result) override;
  void on_failed(const std::string& why) noexcept override;

  // Prints the warning and reports it to the followers.
  void warn(const std::string& message);

  // For the main thread, after the run: one more than the highest step that any rank has reported,
  // in the rows that were kept, too. 0 where it is not known.
  Step reported_steps() const { return ended_ ? reported_steps_ : 0; }
  // For the main thread, after the run. Errors (io): metrics.csv is not complete, and why.
  Expected<void> finished() const;

 private:
  RunOutput(AtomicFile file, std::string path) : path_(std::move(path)), begin_(std::move(file)) {}
  void keep_rows(const OutputBefore& before);
  Expected<void> open_rows();
  void add_row(const std::string& row);
  bool leads(Rank rank);
  void check(const Expected<void>& written);

  const std::string path_;
  std::optional<AtomicFile> begin_;  // of metrics.csv, until it has its name
  std::optional<RowFile> rows_;      // from then on
  RecentLosses kept_losses_;
  std::vector<std::unique_ptr<RunFollower>> followers_;
  std::function<void()> before_first_step_;
  std::function<void(const LiveSettings&)> changed_;
  // Whose steps validations have: of the ranks that report and are not lost the first one.
  std::optional<Rank> lead_;
  std::set<Rank> lost_ranks_;
  std::map<Epoch, Step> epoch_ends_;     // its last step of each epoch
  std::map<Epoch, double> epoch_times_;  // when the last rank had ended it
  Step newest_step_ = 0;                 // its
  Step reported_steps_ = 0;
  std::int64_t lost_ = 0;           // rows
  Expected<void> written_;          // how the last attempt went
  std::string failure_;             // why no call follows; empty: nothing has failed
  std::atomic<bool> ended_{false};  // the rest belongs to the main thread then
};

}  // namespace grapevine
