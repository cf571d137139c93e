// A schedule of changes: a TOML file of --schedule.
//
//   [[change]]
//   epoch = 5
//   algorithm = "sgp"
//   lr = 0.01
//   wiring.topology = "ring"
#pragma once
#include <string>
#include <vector>

#include "actors/run/control/live_settings.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Ascending by epoch. Errors (bad_input): no file, no TOML, a table without an epoch or without
// settings, epochs that do not ascend; the file and the line. Whether settings fit a job is for its
// parts to say.
Expected<std::vector<ScheduledChange>> read_schedule(const std::string& path);

}  // namespace grapevine
