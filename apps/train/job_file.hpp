// job.toml: the resolved job of a run, which process 0 leaves in the run's folder. `grapevine train
// job.toml` repeats the run. It leaves out the options with OptionTraits::not_in_job_file.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The options with which one process of the job, started again, does the same: numbers and names
// that `train` has chosen take the place of "as usual".
TrainOptions resolved_options(const TrainJob& job);

// The same as values of JSON, by the names of options, in their order: numbers, switches and texts.
std::vector<std::pair<std::string, nlohmann::ordered_json>> stated_options(
    const CLI::App& app, const TrainOptions& options, const Wiring& wiring);

struct JobOrigin {
  std::int32_t processes = 1;
  bool resumed = false;
};

// `app`: declared by declare_train_options() and parsed; `options`: from resolved_options().
// REQUIRES: resolve(wiring) succeeds.
std::string job_file_text(const CLI::App& app, const TrainOptions& options, const Wiring& wiring,
                          const JobOrigin& origin);

// The same for a job.
std::string job_file_text(const CLI::App& app, const TrainJob& job);

// Whether the file, or a file with this text, was written by a run.
bool is_job_file(const std::string& path);
bool is_job_text(const std::string& text);

// Errors (bad_input): a file of that name in `out`, which a run would replace, was not written by
// one.
Expected<void> check_job_file(const std::string& out);

}  // namespace grapevine
