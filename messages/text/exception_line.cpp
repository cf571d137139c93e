#include "messages/text/exception_line.hpp"

#include <new>
#include <system_error>

namespace grapevine {

std::string exception_line(const std::exception_ptr& problem) {
  constexpr char kUnknown[] = "unknown exception";
  try {
    if (problem) std::rethrow_exception(problem);
  } catch (const std::bad_alloc&) {
    return "out of memory (std::bad_alloc)";
  } catch (const std::system_error& error) {
    // std::thread throws this where there are too many threads.
    if (error.code() == std::errc::resource_unavailable_try_again)
      return std::string("no more threads (") + error.what() +
             "; ulimit -u, ulimit -v and a container's limit of processes bound them)";
    return error.what();
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
