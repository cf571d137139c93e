// Errors of the CUDA runtime as values; needs no device, and is of use where there is none.
#include "gpu/cuda/error.hpp"

#include <gtest/gtest.h>

namespace grapevine::cuda {
namespace {

TEST(CudaError, IsTakenFromTheRuntimeAsWell) {
  EXPECT_FALSE(check(cudaSetDevice(1 << 20), "a GPU that nobody has").ok());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "somebody else's next check would report it";
}

}  // namespace
}  // namespace grapevine::cuda
