// Lines of TOML with every key of wirings.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/wiring/wiring.hpp"

namespace grapevine::fuzzing {

// Each key with each of the values that its explanation names, then the keys of all presets.
inline std::vector<std::string> wiring_lines() {
  std::vector<std::string> lines = {"[wiring]", "[[wiring.level]]", "[[wiring.level]]",
                                    "ranks = 2"};
  for (const KeyInfo& key : wiring_keys()) {
    std::string_view values = key.values;
    while (!values.empty()) {
      const std::size_t end = values.find(" | ");
      const std::string value(values.substr(0, end));
      if (value.find(' ') == std::string::npos) lines.push_back(toml_line(key.key, value));
      values = end == std::string_view::npos ? std::string_view() : values.substr(end + 3);
    }
    lines.push_back(toml_line(key.key, "2"));
  }
  for (const Preset& preset : presets())
    for (const auto& [key, value] : preset.wiring.keys())
      if (level_key(key).level == 0) lines.push_back(toml_line(key, value));
  return lines;
}

}  // namespace grapevine::fuzzing
