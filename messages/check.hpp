// GRAPEVINE_CHECK(condition, message…): an invariant that stays on in release builds. A failure is
// a programming error: it throws InvariantBroken, which ends the actor and with it the run.
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace grapevine {

class InvariantBroken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {
template <class... Parts>
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const Parts&... parts) {
  std::ostringstream out;
  out << file << ':' << line << ": broken invariant: " << condition;
  if constexpr (sizeof...(Parts) > 0) {
    out << ": ";
    (out << ... << parts);
  }
  throw InvariantBroken(out.str());
}
}  // namespace detail

}  // namespace grapevine

#define GRAPEVINE_CHECK(condition, ...)                                                 \
  do {                                                                                  \
    if (!(condition))                                                                   \
      ::grapevine::detail::check_failed(__FILE__, __LINE__, #condition, ##__VA_ARGS__); \
  } while (false)
