// Settings of a job that may change while it runs.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "messages/expected.hpp"

namespace grapevine {

struct SharedParts;

// By name, as options and wirings have it: "lr", "wiring.density". Values as written.
using LiveSettings = std::map<std::string, std::string>;

// The parts of the run, for the ranks that it began with, with these settings in the place of those
// of its start. The same in every process. Thread-safe. Errors (bad_input): a setting that does not
// exist or may not change; a value that is wrong or does not fit.
using ChangeParts =
    std::function<Expected<std::shared_ptr<const SharedParts>>(const LiveSettings&)>;

}  // namespace grapevine
