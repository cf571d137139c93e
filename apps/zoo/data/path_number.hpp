// The number that some data sets take in the place of a path, e.g. hyperplane:512.
#pragma once
#include <cstdint>
#include <string>

#include "messages/expected.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {

// `fallback` where `text` is empty. Errors: anything but a decimal number in [low, high].
inline Expected<std::int64_t> path_number(const std::string& name, const std::string& text,
                                          std::int64_t fallback, std::int64_t low,
                                          std::int64_t high) {
  if (text.empty()) return fallback;
  const auto number = number_in<std::int64_t>(text);
  if (!number || *number < low || *number > high)
    return bad_input(name + ":" + text + ": expected a number from " + std::to_string(low) +
                     " to " + std::to_string(high) + " after the colon, or nothing for " +
                     std::to_string(fallback));
  return *number;
}

}  // namespace grapevine
