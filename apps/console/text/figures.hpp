// Figures in readable units, for people. Pure.
#pragma once
#include <cstdint>
#include <string>

#include "messages/time.hpp"

namespace grapevine {

// Powers of 1000, three figures: "999 B", "1.2 kB", "12.3 MB", "123 GB".
std::string format_bytes(std::uint64_t bytes);
// The two leading units: "12µs", "250ms", "4.2s", "1m 03s", "2h 05m", "3d 04h"; "0s".
std::string format_duration(Duration duration);
// "1,234,567".
std::string format_count(std::int64_t count);
// Three figures with a decimal prefix: "0.42", "12.3", "1.2k", "34M". "-" where not finite.
std::string format_rate(double per_second);
// Fixed `decimals`; from a million on as many significant digits, "1.75e+21". "-" where not finite.
std::string format_number(double value, int decimals);

}  // namespace grapevine
