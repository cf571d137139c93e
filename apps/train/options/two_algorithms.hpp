// A job file and the command line, or the environment, may name two algorithms. One of them counts.
#pragma once
#include <string>

#include <CLI/CLI.hpp>

#include "apps/train/train_options.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Before the options of a job file are read, behind its wiring. A file of another algorithm than
// --algorithm has a wiring of that one: the preset of --algorithm replaces it, and options.notice
// says so. A [wiring] that names no exchange stays on top of any preset.
//
// The job file of a state to resume (options.of_state): another algorithm is refused, for it has
// other state. Where a launcher or --resume auto restarts a command, the run may have changed its
// algorithm since: that of the state counts, without the --set of the command, which was for the
// other one. Beside --join that of the job counts: an --algorithm of the environment is left out,
// another one refused. Errors: bad_input.
Expected<void> settle_algorithm(CLI::App& app, TrainOptions& options, const std::string& text,
                                const std::string& path);

// After read_job_file(), of a command with a job file of its own that is repeated to continue
// options.resume, whose job file has `text` and the name `path`: where the algorithm of the state
// is another one, that counts, with its wiring, and options.notice says so. Errors: bad_input.
Expected<void> keep_algorithm(CLI::App& app, TrainOptions& options, const std::string& text,
                              const std::string& path);

}  // namespace grapevine
