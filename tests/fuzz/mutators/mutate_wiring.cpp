#include "tests/fuzz/mutators/mutators.hpp"
#include "tests/fuzz/mutators/wiring_lines.hpp"

namespace grapevine::fuzzing {

std::string mutate_wiring(std::string_view text, Rng& rng) {
  static const std::vector<std::string> lines = wiring_lines();
  return mutate_toml(text, lines, rng);
}

}  // namespace grapevine::fuzzing
