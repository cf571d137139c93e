// The list of planted bugs of simulated runs. docs/simulator.md has it as a table.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/simulate/sim_job.hpp"

namespace grapevine {
namespace simulate_mutants {

struct Mutant {
  std::string name;
  std::string check;  // that must report it
  std::string preset;
  std::function<void(SimJob&)> plant;
  std::vector<std::string> set = {};  // wiring.KEY=VALUE
  double momentum = 0;
  std::int64_t workers = 4;
  std::int64_t parameters = 48;
};

const std::vector<Mutant>& all();

}  // namespace simulate_mutants
}  // namespace grapevine
