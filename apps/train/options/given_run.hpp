// The run that a command line of `train` names, before it runs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace grapevine {

struct GivenRun {
  std::string out;           // from given_folder()
  std::string resume;        // --resume; of `auto` the folder that it finds, or empty
  std::int64_t workers = 0;  // --workers; 0: not given
};

// Of `train` with these arguments, in this environment. All is empty where the arguments are wrong.
// A job file that can be read only once, such as a pipe, is left to `train`.
GivenRun given_run(const std::vector<std::string>& arguments);

}  // namespace grapevine
