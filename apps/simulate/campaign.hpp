// Campaigns: a simulated run for each of many seeds, with all checks.
#pragma once
#include <CLI/CLI.hpp>

#include "apps/console/command.hpp"
#include "apps/simulate/sim_options.hpp"

namespace grapevine {

// Runs the seeds of options.seeds in parallel processes, reports each that fails with the command
// that repeats it, and shrinks its faults where --minimize is given. With --out it writes
// seeds.csv and campaign.json there. Errors: bad_input; failed, where a seed failed; io, where no
// seed failed and the files cannot be written.
Expected<void> run_campaign(const CLI::App& app, const SimOptions& options, Console& console);

// One run with all checks; one that fails is shrunk to the faults that it needs. Errors: as above.
Expected<void> run_minimize(const CLI::App& app, const SimOptions& options, Console& console);

}  // namespace grapevine
