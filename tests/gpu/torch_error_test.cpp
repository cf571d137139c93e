#include "gpu/torch_error.hpp"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

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

// The texts are those of LibTorch 1.13, 2.11 and 2.15.
TEST(OneLine, SaysWhereMemoryRanOutAndWhatToDo) {
  const std::string of_gpu =
      ": use a smaller --batch-size, with --accumulate for as many samples, or fewer workers for "
      "each device";
  const auto thrown = [](const std::string& text) {
    try {
      TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    } catch (const std::exception& e) {
      EXPECT_TRUE(is_out_of_memory(e));
      return one_line(e);
    }
    return std::string();
  };
  EXPECT_EQ(thrown("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total "
                   "capacity; 9.71 GiB already allocated) If reserved memory is >> allocated"),
            "out of memory on cuda:0 (20.00 MiB more were needed)" + of_gpu);
  EXPECT_EQ(thrown("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 13 has a total capacity of "
                   "79.10 GiB of which 1.00 GiB is free. Process 7 has 78.1 GiB memory in use.\n"
                   "See documentation"),
            "out of memory on cuda:13 (2.00 GiB more were needed)" + of_gpu);
  EXPECT_EQ(thrown("no more"), "out of memory (no more)" + of_gpu);

  const std::runtime_error script(
      "The following operation failed in the TorchScript interpreter.\n"
      "Traceback of TorchScript (most recent call last):\n"
      "RuntimeError: CUDA out of memory. Tried to allocate 8.00 EiB. GPU 1 has\n");
  EXPECT_TRUE(is_out_of_memory(script));
  EXPECT_EQ(one_line(script), "out of memory on cuda:1 (8.00 EiB more were needed)" + of_gpu);
  const std::runtime_error library(
      "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`");
  EXPECT_EQ(one_line(library), "out of memory (" + std::string(library.what()) + ")" + of_gpu);
}

TEST(OneLine, SaysThatTheHostHasNoMoreMemory) {
  const std::runtime_error no_pages(
      "[enforce fail at alloc_cpu.cpp:66] err == 0. DefaultCPUAllocator: can't allocate memory: "
      "you "
      "tried to allocate 8000000000 bytes. Error code 12 (Cannot allocate memory)");
  EXPECT_TRUE(is_out_of_memory(no_pages));
  EXPECT_EQ(one_line(no_pages),
            "out of memory on the host (8000000000 bytes more were needed): use a smaller "
            "--batch-size, with --accumulate for as many samples, or fewer workers on this "
            "machine");
  EXPECT_EQ(one_line(std::bad_alloc()), "out of memory (std::bad_alloc)");
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("shapes differ")));
}

TEST(OneLine, TakesTheFirstLineOfOthers) {
  EXPECT_EQ(one_line(std::runtime_error("\n  first\nsecond")), "first");
  EXPECT_EQ(one_line(std::runtime_error("")), "an exception without a message");
}

}  // namespace torch_error_test
}  // namespace grapevine
