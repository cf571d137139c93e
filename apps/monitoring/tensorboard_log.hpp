// TensorBoardLog: the curves of a run for TensorBoard, `train --tensorboard`.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/monitoring/event_file.hpp"
#include "apps/monitoring/run_follower.hpp"

namespace grapevine {

// A TensorBoard run for each rank (FOLDER/rank-0000 …) and one for the validation of the averaged
// model (FOLDER/validation). The files grow during the run, every kFlushInterval at most.
class TensorBoardLog final : public RunFollower {
 public:
  static constexpr std::chrono::seconds kFlushInterval{2};

  // `first_steps`: by rank, where a resumed run begins: readers then drop the figures of the run
  // before about these steps and later ones. `warn` gets one line, once, when the files cannot be
  // written any more; the run continues without them. Errors (bad_input): the folder cannot be
  // written to.
  static Expected<std::unique_ptr<TensorBoardLog>> create(
      const std::filesystem::path& folder, const std::vector<Step>& first_steps,
      std::function<void(const std::string&)> warn);

  void on_step(const StepReport& report) override;
  void on_validation(Epoch epoch, Step step, const Evaluation& evaluation) override;
  void on_checkpoint() override { flush(); }
  void on_end() override { flush(); }

 private:
  using Clock = std::chrono::steady_clock;

  TensorBoardLog(std::filesystem::path folder, std::vector<Step> first_steps,
                 std::function<void(const std::string&)> warn);
  EventFile& file(const std::string& run, Step first_step);
  EventFile& file_of(Rank rank);
  void flush();

  const std::filesystem::path folder_;
  const std::vector<Step> first_steps_;
  const std::string file_name_;
  std::function<void(const std::string&)> warn_;
  std::map<std::string, EventFile> files_;  // by run
  Clock::time_point flushed_ = Clock::now();
  bool failed_ = false;
};

}  // namespace grapevine
