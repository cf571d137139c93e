// The settings of `train` that may change while it runs.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "actors/run/control/live_settings.hpp"
#include "apps/train/train_options.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Their names: of options without dashes, and of wiring keys.
const std::vector<std::string>& live_setting_names();

// The keys of a whole wiring with their values, also those at their default; empty: it does not
// resolve.
std::map<std::string, std::string> resolved_values(const Wiring& wiring);
std::map<std::string, std::string> resolved_values(const TrainOptions& options);

// Sets them in `options`, as the command line would. Errors (bad_input): a name that is none of
// these, a value that is no number. Whether it fits is for the parts to say.
Expected<void> apply_settings(TrainOptions& options, const LiveSettings& settings);

}  // namespace grapevine
