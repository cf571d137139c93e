// `train --join HOST:PORT`: the options of a running job, from its process 0.
#pragma once
#include <CLI/CLI.hpp>

#include "apps/train/train_options.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Before read_job_file(): the job takes the place of a job file, and `options.place` that of a
// launcher's variables. Blocks until the job has a place for this process, at most
// options.join_timeout_s. Errors (bad_input: another source of the job beside it, a bad address, a
// refusal; timeout): what is wrong, where.
Expected<void> find_job_to_join(CLI::App& app, TrainOptions& options);

}  // namespace grapevine
