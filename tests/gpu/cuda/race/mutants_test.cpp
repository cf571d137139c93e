// The test of the tester: each flaw of mutants.cmake is found, where it is, in any order of blocks
// and threads; the copy without a flaw is not accused.
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "tests/gpu/cuda/device/device.hpp"
#include "tests/gpu/cuda/race/checker.hpp"
#include "tests/gpu/cuda/race/mutant.hpp"

namespace racecheck {

void PrintTo(const Mutant& mutant, std::ostream* out) {
  *out << mutant.name;
}  // NOLINT: GoogleTest's

namespace {

using grapevine::cuda::DeviceArray;

class Mutants : public testing::TestWithParam<Mutant> {
 protected:
  // Of a selection that takes several tiles and blocks.
  static std::vector<Finding> findings_of(const Mutant& mutant) {
    constexpr std::int64_t kSize = 40003, kWanted = 400;
    DeviceArray<float> x(grapevine::cuda::normal(kSize, 1)), values(kWanted);
    DeviceArray<std::uint32_t> indices(kWanted), count(1);
    DeviceArray<unsigned char> workspace(
        static_cast<std::int64_t>(mutant.workspace_bytes(kSize, kWanted)));
    // A flaw may lead to an access outside as well, which ends the selection.
    const bool ran = mutant.top_k(indices.data(), values.data(), count.data(), x.data(), kSize,
                                  kWanted, workspace.data());
    EXPECT_TRUE(ran || *mutant.kernel != '\0');
    return Checker::instance().take_findings();
  }
};

TEST_P(Mutants, AreFoundAndNothingElseIs) {
  const std::string kernel = GetParam().kernel;
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    emulation::reseed(seed);
    const auto findings = findings_of(GetParam());
    for (const Finding& finding : findings)
      if (kernel.empty()) ADD_FAILURE() << finding.text;
    if (kernel.empty()) continue;
    const auto is_it = [&](const Finding& finding) {
      return finding.what == Finding::What::race &&
             finding.kernel.find(kernel) != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(findings.begin(), findings.end(), is_it))
        << "no race in " << kernel << " among " << findings.size() << " findings";
  }
}

INSTANTIATE_TEST_SUITE_P(TopK, Mutants, testing::ValuesIn(mutants()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MutantsList, IsThere) { EXPECT_GE(mutants().size(), 8U); }

}  // namespace
}  // namespace racecheck
