// What an actor that other processes reach does with messages that its interface does not have.
#pragma once
#include <caf/all.hpp>

namespace grapevine {

// CAF prints each of them with its content, which the sender chooses. From now on they are ignored,
// with a line of the log that is written at most once in ten seconds for each kind of actor.
void ignore_unexpected_messages(caf::scheduled_actor& self);

}  // namespace grapevine
