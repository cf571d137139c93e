// Threads inside one operation.
#pragma once

namespace grapevine {

// Bounds the threads that LibTorch and its BLAS use for one operation, per calling thread. OpenBLAS
// otherwise takes all cores for each product and makes concurrent callers wait for each other.
// REQUIRES: threads >= 1. Call it before workers start.
void limit_math_threads(int threads);

}  // namespace grapevine
