// The status of a running job as JSON: docs/control.md describes it.
#pragma once
#include <nlohmann/json.hpp>

#include "actors/run/control/run_status.hpp"
#include "apps/control/run_description.hpp"

namespace grapevine {

// Figures of pairs of ranks are left out above so many ranks.
inline constexpr std::size_t kMostRanksInMatrix = 64;

// NaN and infinities are null.
nlohmann::ordered_json status_json(const RunStatus& status, const RunDescription& facts);

}  // namespace grapevine
