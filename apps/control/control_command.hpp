// The verb `control`: asks and changes a running job.
#pragma once
#include <memory>

#include "apps/console/command.hpp"
#include "apps/control/control_client.hpp"
#include "messages/expected.hpp"

namespace grapevine {

std::unique_ptr<Command> make_control_command();

// Columns for a status on standard output: those of the terminal, or kAnyWidth.
int status_width();
// Prints the status of the job once: a table for people, or one JSON object. Errors: the client's.
Expected<void> print_status(ControlClient& client, bool json, Console& console);

}  // namespace grapevine
