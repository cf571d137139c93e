// Straggler injection: how much slower a worker is made at each step.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "messages/expected.hpp"
#include "messages/ids.hpp"
#include "messages/time.hpp"

namespace grapevine {

// A pure function of (rank, step): every rank can compute everybody's delay, so that "K random
// ranks each step" needs no talk between them.
using DelayModel = std::function<Duration(Rank, Step)>;

// Grammar (comma-separated terms add up):
//   rank=R:DUR         one rank, every step
//   random=K:DUR       K random ranks at each step
//   rotate=DUR..DUR    evenly spaced delays over the ranks, rotated by one rank at each step
//   lognormal=MU:SIGMA exp(N(mu, sigma^2)) seconds for every rank and step
// DUR is like 300ms, 0.3s, 250us. An empty spec: no delay.
// Errors (bad_input) quote the term and say what was expected.
Expected<DelayModel> parse_delay(const std::string& spec, std::int32_t ranks, std::uint64_t seed);

// "300ms" -> 300,000,000 ns. Units: ns us ms s.
Expected<Duration> parse_duration(const std::string& text);

}  // namespace grapevine
