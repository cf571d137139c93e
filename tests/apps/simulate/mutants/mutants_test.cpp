// The checks of simulated runs notice planted bugs: a campaign of seeded faults finds each by the
// check that it is for, and shrinks the faults; without the bug the same run keeps its promises.
#include "tests/apps/simulate/mutants/mutants.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "apps/simulate/checked_sim.hpp"
#include "apps/simulate/shrink.hpp"

namespace grapevine {
namespace simulate_mutants {

constexpr std::int64_t kSeeds = 100;
constexpr std::size_t kMostFaults = 5;

SimOptions options_of(const Mutant& mutant) {
  SimOptions options;
  options.train.algorithm = mutant.preset;
  options.train.workers = mutant.workers;
  options.train.steps = 12;
  options.train.lr = 0.05;
  options.train.momentum = mutant.momentum;
  for (const std::string& key : mutant.set) options.train.set.push_back("wiring." + key);
  options.maths = "quadratic";
  options.parameters = mutant.parameters;
  options.network = "alpha=1e-3,beta=1e-6,jitter=1e-3";
  options.compute = "lognormal=-4:0.5";
  options.alter = mutant.plant;
  return options;
}

// The line of that check; empty: it is silent.
std::string line_of(const CheckedOutcome& outcome, const std::string& check) {
  for (const std::string& violation : outcome.violations)
    if (violation.rfind(check + ":", 0) == 0) return violation;
  return "";
}

bool fails(SimOptions options, const std::vector<Fault>& faults, const std::string& check) {
  options.fail = faults_text(faults);
  const auto outcome = run_checked(options);
  return outcome.ok() && !line_of(*outcome, check).empty();
}

class SimulatedMutants : public testing::TestWithParam<Mutant> {};

TEST_P(SimulatedMutants, AreFoundByNameAndShrunk) {
  const Mutant& mutant = GetParam();
  SimOptions options = options_of(mutant);
  std::vector<Fault> faults;
  std::string line;
  for (std::int64_t seed = 1; seed <= kSeeds && line.empty(); ++seed) {
    options.train.seed = seed;
    options.fail = "random=6";
    const auto outcome = run_checked(options);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    line = line_of(*outcome, mutant.check);
    auto parsed = parse_faults(outcome->faults, FaultBounds::of_known_plan());
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    faults = *std::move(parsed);
  }
  ASSERT_FALSE(line.empty()) << "the check '" << mutant.check << "' is silent in " << kSeeds
                             << " seeds";
  faults = shrink(std::move(faults), [&](const std::vector<Fault>& some) {
    return fails(options, some, mutant.check);
  });
  EXPECT_LE(faults.size(), kMostFaults) << faults_text(faults);
  std::cout << "seed " << options.train.seed << ", --fail '" << faults_text(faults) << "': " << line
            << std::endl;

  options.alter = nullptr;
  options.fail = faults_text(faults);
  const auto sound = run_checked(options);
  ASSERT_TRUE(sound.ok()) << sound.error().message;
  EXPECT_TRUE(sound->violations.empty())
      << "without the bug: " << fmt::format("{}", fmt::join(sound->violations, "\n"));
}

std::string test_name(const testing::TestParamInfo<Mutant>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Planted, SimulatedMutants, testing::ValuesIn(all()), test_name);

}  // namespace simulate_mutants
}  // namespace grapevine
