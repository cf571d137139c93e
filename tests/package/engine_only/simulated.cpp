// Seeded faults in virtual time, with all checks, as the test of a role from outside would run
// them.
#include <iostream>

#include "apps/simulate/checked_sim.hpp"

int main() {
  grapevine::SimOptions options;
  options.train.algorithm = "osgp";
  options.train.workers = 4;
  options.train.steps = 12;
  options.train.lr = 0.05;
  options.maths = "quadratic";
  options.parameters = 48;
  options.compute = "lognormal=-4:0.5";
  options.fail = "random=4";
  for (options.train.seed = 1; options.train.seed <= 20; ++options.train.seed) {
    const auto outcome = grapevine::run_checked(options);
    if (!outcome) return 2;
    for (const std::string& violation : outcome->violations) {
      std::cerr << "seed " << options.train.seed << ", --fail " << outcome->faults << ": "
                << violation << '\n';
      return 1;
    }
  }
  std::cout << "20 seeds keep their promises\n";
}
