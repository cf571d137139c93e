// LibTorch's exceptions as one line.
#pragma once
#include <exception>
#include <string>

namespace grapevine {

// What went wrong, without stack traces: of a TorchScript failure the line that names the
// exception, else the first line that is not empty. Where memory ran out: that, where, and what to
// do (out_of_memory_line() in messages/text/exception_line.hpp).
std::string one_line(const std::exception& e);

// Whether memory ran out, of a device or of the host.
bool is_out_of_memory(const std::exception& e);

}  // namespace grapevine
