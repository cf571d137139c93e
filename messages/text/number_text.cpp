#include "messages/text/number_text.hpp"

#include <charconv>

#include "messages/check.hpp"

namespace grapevine {

std::string number_text(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  GRAPEVINE_CHECK(error == std::errc(), "number does not fit its buffer");
  return std::string(buffer, end);
}

std::string seconds_text(Duration duration) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(duration).count()) + " s";
}

}  // namespace grapevine
