// A program that uses the engine without its command line: it checks a preset.
#include <iostream>

#include "algorithms/lockstep/conformance.hpp"

int main() {
  const auto preset = grapevine::find_preset("osgp");
  if (!preset) return 2;
  for (const std::string& violation : grapevine::check_conformance(preset->wiring)) {
    std::cerr << violation << '\n';
    return 1;
  }
  std::cout << preset->name << " keeps its promises\n";
}
