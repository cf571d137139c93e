#include "gpu/torch_error.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace grapevine {
namespace torch_error_test {

TEST(OneLine, DropsTheStackTrace) {
  try {
    at::mm(at::ones({2, 3}), at::ones({4, 5}));
    FAIL() << "mm takes any shapes";
  } catch (const std::exception& e) {
    EXPECT_EQ(one_line(e), "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)");
  }
}

TEST(OneLine, FindsTheExceptionOfAScript) {
  const std::runtime_error script(
      "The following operation failed in the TorchScript interpreter.\n"
      "Traceback of TorchScript (most recent call last):\n"
      "  File \"net.py\", line 3, in forward\n"
      "    return x @ y  # Error: not here\n"
      "           ~ <--- HERE\n"
      "RuntimeError: shapes differ\n");
  EXPECT_EQ(one_line(script), "shapes differ");
}

TEST(OneLine, TakesTheFirstLineOfOthers) {
  EXPECT_EQ(one_line(std::runtime_error("\n  first\nsecond")), "first");
  EXPECT_EQ(one_line(std::runtime_error("")), "an exception without a message");
}

}  // namespace torch_error_test
}  // namespace grapevine
