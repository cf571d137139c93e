// The message of an exception, as one line for users.
#pragma once
#include <exception>
#include <string>

namespace grapevine {

// The first line of what() of the exception behind `problem`, in plainer words where memory or
// threads ran out; never empty.
std::string exception_line(const std::exception_ptr& problem);

// Where memory ran out, of a GPU or of the host: where, how much was asked for, and what to do,
// e.g. "out of memory on cuda:0 (2.00 GiB more were needed): use a smaller --batch-size, …". Empty:
// `e`, whose first line is `line`, says something else. LibTorch's exceptions, also those that a
// TorchScript interpreter throws again as its own, those of cuBLAS and cuDNN, and std::bad_alloc.
std::string out_of_memory_line(const std::exception& e, const std::string& line);

}  // namespace grapevine
