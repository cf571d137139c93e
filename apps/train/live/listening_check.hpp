// The ports at which a run is asked and changed, before there is anything of it.
#pragma once
#include "apps/train/train_options.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Whether --control is an address, of any machine. Errors (bad_input): malformed.
Expected<void> check_control_address(const TrainOptions& options);

// Whether --control and --metrics-port can be listened on: each port is opened and closed again.
// Errors (bad_input): malformed, in use, or without the secret that --control needs.
Expected<void> check_listening(const TrainOptions& options);

}  // namespace grapevine
