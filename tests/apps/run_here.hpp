// run_here: a command of the program in this process. For calls that need no process of their own:
// no signals, no limits, no time after which they are ended. A process takes most of a second to
// load and to leave LibTorch, which is more than such a call itself takes.
#pragma once
#include <string>
#include <vector>

#include "tests/apps/process.hpp"

namespace grapevine {

// As main() runs it: the exit code, and what it writes. `environment`: as in ProcessOptions; like
// those of a process, the options in the variables of this process do not count. A call that does
// not end in order, with a thread left behind, fails the test. Not thread-safe.
ProcessResult run_here(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment = {});

}  // namespace grapevine
