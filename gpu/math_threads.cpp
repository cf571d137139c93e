#include "gpu/math_threads.hpp"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace grapevine {

void limit_math_threads(int threads) {
  at::set_num_threads(threads);
  // Which BLAS LibTorch uses is decided when it is loaded; there is no header to ask.
  if (void* symbol = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))
    reinterpret_cast<void (*)(int)>(symbol)(threads);
}

}  // namespace grapevine
