// Numbers in messages.
#pragma once
#include <string>

#include "messages/time.hpp"

namespace grapevine {

// The shortest text that reads back as the same number: "0.1", "1e+30", "nan". Any locale.
std::string number_text(double value);
// Whole seconds, rounded down: "300 s".
std::string seconds_text(Duration duration);

}  // namespace grapevine
