#include "gpu/cuda/architectures.hpp"

#include <gtest/gtest.h>

namespace grapevine::cuda {
namespace {

bool fit(const std::string& built, int major, int minor) {
  return check_kernels(built, "a GPU", major, minor).ok();
}

TEST(Architectures, MachineCodeServesItsMajorVersionAndPtxAllNewerOnes) {
  const std::string usual = "80-real,90";
  EXPECT_TRUE(fit(usual, 8, 0) && fit(usual, 8, 9) && fit(usual, 9, 0));
  EXPECT_TRUE(fit(usual, 10, 0) && fit(usual, 12, 1));
  EXPECT_FALSE(fit(usual, 7, 0) || fit(usual, 7, 5));
  EXPECT_FALSE(fit("90-real", 10, 0) || fit("86-real", 8, 0) || fit("80-virtual", 7, 5));
  EXPECT_TRUE(fit("80-virtual", 8, 0) && fit("90a", 9, 0) && fit("100", 10, 3));
  EXPECT_TRUE(fit("native", 5, 0) && fit("all-major", 5, 0));
}

TEST(Architectures, TheErrorSaysHowToBuild) {
  const auto old = check_kernels("80-real,90", "cuda:0 (Tesla T4)", 7, 5);
  ASSERT_FALSE(old.ok());
  EXPECT_EQ(old.error().message,
            "cuda:0 (Tesla T4) has compute capability 7.5, the CUDA kernels of this build are for "
            "80-real,90: configure with -DCMAKE_CUDA_ARCHITECTURES=75");
}

}  // namespace
}  // namespace grapevine::cuda
