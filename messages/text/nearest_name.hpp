// The name that was probably meant.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace grapevine {

// The first shortest of `valid` that begins with `name` (three letters or more), else the one that
// is fewest slips away: insertions, deletions, changes, swaps of neighbours; at most half as many
// as `name` has letters behind the group that both are in ("wiring."). Leading dashes count on
// neither side.
std::optional<std::string> nearest_name(const std::string& name,
                                        const std::vector<std::string>& valid);

}  // namespace grapevine
