// The actors of a wiring and the messages of one exchange, as a drawing.
#pragma once
#include <ostream>
#include <string>

#include "algorithms/wiring/wiring.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The most ranks of a drawing.
inline constexpr std::int32_t kMostDrawnRanks = 64;

// Runs the roles of `ranks` workers (and the wiring's servers) in lockstep until one exchange is
// over, and prints the actors and the messages that they sent in it, as Graphviz. `title`: of the
// drawing. Errors (bad_input): a wiring that does not fit the number of ranks; more than
// kMostDrawnRanks.
Expected<void> draw_wiring(const Plan& plan, std::int32_t ranks, const std::string& title,
                           std::ostream& out);

}  // namespace grapevine
