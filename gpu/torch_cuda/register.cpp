#include "gpu/torch_cuda/register.hpp"

#include "gpu/torch_cuda/cuda_runtime.hpp"
#include "gpu/torch_cuda/operators.hpp"

namespace grapevine {

void register_torch_cuda() {
  register_cuda_devices();
  register_cuda_operators();
}

}  // namespace grapevine
