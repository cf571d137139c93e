// Errors of the CUDA runtime as values.
#pragma once
#include <cuda_runtime_api.h>

#include <string>

#include "messages/expected.hpp"

namespace grapevine::cuda {

// `what` was asked for. Also for a kernel that was just launched: check(cudaGetLastError(), name).
// Errors of work that is already on a stream surface at a later call, as CUDA has it. The runtime
// keeps the last error of each thread, too: it is cleared, or the next one to ask would report it.
inline Expected<void> check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  const bool absent = code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver;
  return Error{absent ? Errc::unavailable : Errc::failed,
               std::string("CUDA: ") + what + ": " + cudaGetErrorString(code)};
}

// What a caller did wrong, before anything was launched.
inline Error refused(const char* what, const std::string& why) {
  return {Errc::bad_input, std::string("CUDA: ") + what + ": " + why};
}

}  // namespace grapevine::cuda
