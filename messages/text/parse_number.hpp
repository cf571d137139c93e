// Numbers that a text has, in any locale.
#pragma once
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>
#include <system_error>

namespace grapevine {

// The whole of `text` as a number of that type; none: it is no number, has more than one, or the
// type does not hold it. Real numbers: also "inf" and "nan", see finite_number_in().
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

inline std::optional<double> finite_number_in(std::string_view text) {
  const auto number = number_in<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

}  // namespace grapevine
