// grapevine trace: what the message trace of a run tells.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

// trace RUN [--json] [--csv DIR] [--why RANK:STEP]. Finished, killed and running jobs; what the
// trace lacks is a note on err, or in "missing" of --json. Errors (bad_input): no trace there.
std::unique_ptr<Command> make_trace_command();

}  // namespace grapevine
