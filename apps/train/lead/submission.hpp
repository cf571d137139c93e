// `train --cluster`: the job is given to a pool of nodes.
#pragma once
#include "apps/console/command.hpp"
#include "apps/train/train_options.hpp"

namespace grapevine {

// Until the job has ended there. The options are checked here as far as possible. `app`: that of
// `train`, after parsing. Errors: bad_input; those of submit_job().
Expected<void> submit_train_job(const CLI::App& app, TrainOptions& options, Console& console);

}  // namespace grapevine
