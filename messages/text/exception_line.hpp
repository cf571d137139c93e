// The message of an exception, as one line for users.
#pragma once
#include <exception>
#include <string>

namespace grapevine {

// The first line of what() of the exception behind `problem`, in plainer words where memory or
// threads ran out; never empty.
std::string exception_line(const std::exception_ptr& problem);

}  // namespace grapevine
