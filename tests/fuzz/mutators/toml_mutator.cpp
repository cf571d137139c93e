#include <algorithm>
#include <cstddef>
#include <utility>

#include "tests/fuzz/mutators/mutators.hpp"

namespace grapevine::fuzzing {
namespace {

using Lines = std::vector<std::string>;

constexpr std::string_view kEquals = " = ";

const Lines& toml_values() {
  static const Lines values = {"0",
                               "1",
                               "-1",
                               "2",
                               "3",
                               "8",
                               "1000000",
                               "2147483648",
                               "9223372036854775807",
                               "0.5",
                               "1.0",
                               "1e-9",
                               "1e300",
                               "inf",
                               "nan",
                               "true",
                               "false",
                               "\"\"",
                               "\"0:1,2:3\"",
                               "\"0:0.1,1:0.5\"",
                               "\"none\"",
                               "\"a\\nb\"",
                               "\"a\\u001bb\"",
                               "[]",
                               "[1, 2]",
                               "[\"wiring.peers=2\"]",
                               "{}",
                               "2020-01-01",
                               "0x10",
                               "+1",
                               "\"01\"",
                               "\"1e3\""};
  return values;
}

Lines lines_of(std::string_view text) {
  Lines lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// "key" and "value"; an empty key: the line assigns nothing.
std::pair<std::string, std::string> assignment_in(const std::string& line) {
  const std::size_t at = line.find(kEquals);
  if (at == std::string::npos) return {};
  return {line.substr(0, at), line.substr(at + kEquals.size())};
}

std::string value_for(const Lines& lines, const Lines& known, Rng& rng) {
  switch (rng() % 3) {
    case 0:
      return any_of(toml_values(), rng);
    case 1:
      return assignment_in(any_of(lines, rng)).second;
    default:
      return assignment_in(any_of(known, rng)).second;
  }
}

// The line with another value, or with another key.
void assign(std::string& line, const Lines& lines, const Lines& known, Rng& rng) {
  const auto [key, value] = assignment_in(line);
  if (key.empty()) return;
  const auto other = assignment_in(any_of(known, rng)).first;
  if (rng() % 3 == 0 && !other.empty()) {
    line = other + std::string(kEquals) + value;
    return;
  }
  const std::string now = value_for(lines, known, rng);
  if (!now.empty()) line = key + std::string(kEquals) + now;
}

// Counts up or down, or gets one digit more.
void change_digit(std::string& line, Rng& rng) {
  const std::size_t at = line.find_last_of("0123456789");
  if (at == std::string::npos) return;
  if (rng() % 4 == 0) line.insert(at, 1, static_cast<char>('0' + rng() % 10));
  line[at] = static_cast<char>('0' + rng() % 10);
}

void change(Lines& lines, const Lines& known, Rng& rng) {
  const auto kind = lines.empty() ? 0 : rng() % 8;
  const auto make = [&] { return any_of(known, rng); };
  if (change_entries(lines, kind, make, rng)) return;
  if (kind == 5)
    change_digit(any_of(lines, rng), rng);
  else
    assign(any_of(lines, rng), lines, known, rng);
}

}  // namespace

std::string mutate_toml(std::string_view text, const std::vector<std::string>& known, Rng& rng) {
  Lines lines = lines_of(text);
  for (auto changes = 1 + rng() % 3; changes > 0; --changes) change(lines, known, rng);
  std::string mutant;
  for (const std::string& line : lines) mutant += line + "\n";
  return mutant;
}

}  // namespace grapevine::fuzzing
