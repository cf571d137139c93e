// summary.json: the results of a run.
#pragma once
#include <optional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "actors/run/run_observer.hpp"
#include "apps/train/run_tally.hpp"
#include "apps/train/train_job.hpp"
#include "gpu/compute.hpp"

namespace grapevine {

// NaN and infinities become null. `goodput`: see actors/record/goodput.hpp.
nlohmann::ordered_json make_summary(const TrainJob& job, const RunResult& result, double final_loss,
                                    double goodput, const std::optional<Evaluation>& test);

// The versions of this program and of its libraries, as summary.json has them.
nlohmann::ordered_json version_facts();

// The present time as summary.json has it: "2026-11-24T17:20:00+0000".
std::string summary_date();

// Adds `options` (those of job.toml, by name), `host`, `date` and `out`: what repeats the run.
// `app`: declared by declare_train_options() and parsed.
void add_origin(const CLI::App& app, const TrainJob& job, const std::string& date,
                nlohmann::ordered_json& summary);

// Names the first figure of a run in the folder `out` that is not finite; nothing: all are.
std::optional<Error> not_finite(const RunResult& result, const RecentLosses& losses,
                                const std::optional<Evaluation>& test, const std::string& out);

}  // namespace grapevine
