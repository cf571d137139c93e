// LibTorch's exceptions as one line.
#pragma once
#include <exception>
#include <string>

namespace grapevine {

// What went wrong, without stack traces: of a TorchScript failure the line that names the
// exception, else the first line that is not empty.
std::string one_line(const std::exception& e);

}  // namespace grapevine
