// How long a gradient takes in a simulated run.
#pragma once
#include <string>

#include "actors/run/delay.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct ComputeTime {
  DelayModel::Term of;  // a pure function of rank and step
  Duration mean{0};     // about
};

// SECONDS, or like 50ms: always the same; lognormal=MU:SIGMA, exp(N(MU, SIGMA^2)) seconds;
// normal=MEAN:DEVIATION, cut off at a tenth of the mean; uniform=A..B; exponential=MEAN. Of an hour
// at most; what is drawn is cut off there. Seeded by
// (seed, rank, step). Errors (bad_input) give the expected form.
Expected<ComputeTime> parse_compute_time(const std::string& spec, std::uint64_t seed);

}  // namespace grapevine
