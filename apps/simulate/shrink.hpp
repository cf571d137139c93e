// Delta debugging of a list of faults.
#pragma once
#include <functional>
#include <vector>

#include "apps/simulate/fault_plan.hpp"

namespace grapevine {

// A part of `faults` that still fails, and of which no single fault can be left out (Zeller,
// Hildebrandt 2002, ddmin). `fails` is called for parts of the list, which keep its order.
// REQUIRES: fails(faults).
std::vector<Fault> shrink(std::vector<Fault> faults,
                          const std::function<bool(const std::vector<Fault>&)>& fails);

}  // namespace grapevine
