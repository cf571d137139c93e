#include "gpu/torch_error.hpp"

#include <c10/util/Exception.h>

#include <sstream>

#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

std::string line_without_trace(const std::exception& e) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&e);
  std::istringstream lines(torch_error != nullptr ? torch_error->what_without_backtrace()
                                                  : e.what());
  std::string first;
  for (std::string line; std::getline(lines, line);) {
    const auto text = line.find_first_not_of(" \t\r");
    if (text == std::string::npos) continue;
    // The interpreter prints its traceback first and the exception last, after its Python name.
    const auto name = line.find("Error: ");
    const bool is_exception = name != std::string::npos && line.find(' ', text) == name + 6;
    if (is_exception) return line.substr(name + 7);
    if (first.empty()) first = line.substr(text);
  }
  return first.empty() ? "an exception without a message" : first;
}

}  // namespace

std::string one_line(const std::exception& e) {
  const std::string line = line_without_trace(e);
  const std::string memory = out_of_memory_line(e, line);
  return memory.empty() ? line : memory;
}

bool is_out_of_memory(const std::exception& e) {
  return !out_of_memory_line(e, line_without_trace(e)).empty();
}

}  // namespace grapevine
