#include "messages/exception_line.hpp"

namespace grapevine {

std::string exception_line(const std::exception_ptr& problem) {
  constexpr char kUnknown[] = "unknown exception";
  try {
    if (problem) std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const std::string line = text.substr(0, text.find('\n'));
    return line.empty() ? kUnknown : line;
  } catch (...) {
    return kUnknown;
  }
  return kUnknown;
}

}  // namespace grapevine
