// Threads inside one operation, and the memory that their products take.
#pragma once
#include "messages/expected.hpp"

namespace grapevine {

// Bounds the threads that LibTorch and its BLAS use for one operation, per calling thread. OpenBLAS
// otherwise takes all cores for each product and makes concurrent callers wait for each other.
// REQUIRES: threads >= 1. Call it before workers start.
void limit_math_threads(int threads);

// Whether that many threads can multiply matrices at the same time. OpenBLAS takes 128 MiB of
// address space for each of them, and where it gets none it tries again without end. Errors
// (failed). Always true where LibTorch uses another BLAS.
Expected<void> check_product_memory(int threads);
// The same for the calling thread, whose later products then have what they need: OpenBLAS keeps
// it.
Expected<void> take_product_memory();

}  // namespace grapevine
