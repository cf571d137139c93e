// The values that the options of `train` may have.
#pragma once
#include <cstdint>

#include "apps/train/train_options.hpp"
#include "messages/expected.hpp"

namespace grapevine {

inline constexpr std::int64_t kMaxSteps = 1'000'000'000'000;  // of each worker

// Errors (bad_input): a number out of its range, a name that is none, or two values that do not fit
// each other.
Expected<void> check_option_values(const TrainOptions& options);

}  // namespace grapevine
