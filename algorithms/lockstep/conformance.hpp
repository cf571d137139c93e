// The promises of a role to the engine, checked for a wiring: for roles inside the engine and for
// those of other programs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/wiring/wiring.hpp"
#include "messages/ids.hpp"

namespace grapevine {

struct ConformanceOptions {
  // Numbers of ranks that train; those that the wiring refuses with a reason are left out.
  std::vector<std::int32_t> ranks = {1, 2, 3, 5};
  // Numbers of parameters; 2: fewer than there are ranks.
  std::vector<std::int64_t> dimensions = {13, 2};
  Step steps = 40;        // of each rank
  double lr = 0.1;        // > 0
  double momentum = 0.5;  // of SGD, in [0, 1), where the role uses it
  std::uint64_t seed = 1;

  // What the wiring claims besides: the same bits in every order of arrival (then a resumed run has
  // them, too); one rank alone does what SGD does.
  bool any_order = false;
  bool one_rank_is_sgd = false;
};

// Runs the roles of all ranks on the objectives |x - (i + 1)|^2 / 2 of each rank i, from x = 0,
// with events in random orders, and returns the violations, a sentence each; none: the wiring
// conforms.
//
// Checked for each number of ranks and parameters:
//   - the run ends, with every rank finished, and no role breaks an invariant;
//   - each gradient is committed or dropped exactly once, by the rank that computed it;
//   - the mean model is finite, and less than half as far from the optimum as at the start;
//   - roles that are saved and loaded at random events, as in a resumed run, end as well, and
//     messages travel as bytes; where the result is the same in two orders of arrival, it is also
//     the same, bit for bit, with these;
//   - where it is not the same: an equal order gives equal bits;
//   - the claims.
//
// Runs on the caller's thread; some milliseconds for each number of ranks and parameters.
std::vector<std::string> check_conformance(const Wiring& wiring,
                                           const ConformanceOptions& options = {});

}  // namespace grapevine
