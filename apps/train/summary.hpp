// summary.json: the results of a run.
#pragma once
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "actors/run/supervisor.hpp"
#include "apps/train/train_job.hpp"
#include "gpu/compute.hpp"

namespace grapevine {

// NaN and infinities become null. `goodput`: see actors/record/goodput.hpp.
nlohmann::ordered_json make_summary(const TrainJob& job, const RunResult& result, double final_loss,
                                    double goodput, const std::optional<Evaluation>& test);

// The key of the first figure that is not finite where it should be, or empty. `final_loss`:
// nothing where no step was logged.
std::string find_not_finite(const RunResult& result, const std::optional<double>& final_loss,
                            const std::optional<Evaluation>& test);

}  // namespace grapevine
