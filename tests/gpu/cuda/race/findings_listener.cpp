// What the checker finds while a test runs fails the test.
#include <gtest/gtest.h>

#include "tests/gpu/cuda/race/checker.hpp"

namespace racecheck {
namespace {

class FindingsListener : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { Checker::instance().take_findings(); }
  void OnTestEnd(const testing::TestInfo&) override {
    for (const Finding& finding : Checker::instance().take_findings())
      ADD_FAILURE() << finding.text;
  }
};

[[maybe_unused]] const bool kListens = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new FindingsListener);
  return true;
}();

}  // namespace
}  // namespace racecheck
