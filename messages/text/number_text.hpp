// Numbers in messages.
#pragma once
#include <string>

namespace grapevine {

// The shortest text that reads back as the same number: "0.1", "1e+30", "nan". Any locale.
std::string number_text(double value);

}  // namespace grapevine
