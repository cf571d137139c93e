// The folders that a command line of `train` names, before it runs.
#pragma once
#include <string>
#include <vector>

namespace grapevine {

struct GivenFolders {
  std::string out;     // from given_folder()
  std::string resume;  // --resume
};

// Of `train` with these arguments, in this environment. Both are empty where the arguments are
// wrong. A job file that can be read only once, such as a pipe, is left to `train`.
GivenFolders given_folders(const std::vector<std::string>& arguments);

}  // namespace grapevine
