// How many processes the run has places for that a job of nodes continues.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace grapevine {

// `arguments`: of `train`, as "--resume=DIR"; relative paths begin in the current folder. The
// processes for which the run has places (its --max-ranks); 0: it has no limit, or none is found
// there, of which process 0 says more. Reads a small file.
std::int32_t places_of_run(const std::vector<std::string>& arguments);

}  // namespace grapevine
