// Errors of the CUDA runtime as values.
#include "gpu/cuda/error.hpp"

#include <gtest/gtest.h>

#include "tests/gpu/cuda/device/device.hpp"

namespace grapevine::cuda {
namespace {

// Without a driver every call fails, so that there is nothing to take.
class CudaError : public OnDevice {};

TEST_F(CudaError, IsTakenFromTheRuntimeAsWell) {
  EXPECT_FALSE(check(cudaSetDevice(1 << 20), "a GPU of no machine").ok());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "another call's check would report it";
}

}  // namespace
}  // namespace grapevine::cuda
