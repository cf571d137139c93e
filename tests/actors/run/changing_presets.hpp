// Presets whose runs continue with other members.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace virtual_run_test {

inline std::vector<std::string> changing_presets() {
  std::vector<std::string> names;
  for (const std::string& preset : kPresets)
    if (changes_members(*resolve(find_preset(preset)->wiring))) names.push_back(preset);
  return names;
}

// Their number: where nodes or the number of ranks change, those with servers do not take part.
inline int presets_without_servers() {
  return static_cast<int>(std::count_if(kPresets.begin(), kPresets.end(), [](const auto& preset) {
    return resolve(find_preset(preset)->wiring)->servers == 0;
  }));
}

}  // namespace virtual_run_test
}  // namespace grapevine
