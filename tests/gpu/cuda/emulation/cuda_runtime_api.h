// The calls of the CUDA runtime that gpu/cuda and its tests make. Device memory is host memory that
// cudaMalloc gave; calls that get another's refuse it.
// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
#pragma once
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorInvalidConfiguration,
  cudaErrorIllegalAddress,
  cudaErrorInsufficientDriver,
  cudaErrorNoDevice,
  cudaErrorNotReady,
  cudaErrorInvalidDevice
};
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
using cudaStream_t = struct EmulatedStream*;

// The reason, where one is known: of the last call that gave this code.
const char* cudaGetErrorString(cudaError_t code);
inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 2, cudaSuccess;  // few, so that grids go round their loops
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream);
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) { return *stream = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline std::atomic<bool> emulated_stream_is_stuck{false};
inline cudaError_t cudaStreamQuery(cudaStream_t) {
  return emulated_stream_is_stuck ? cudaErrorNotReady : cudaSuccess;
}
inline thread_local cudaError_t emulated_last_error = cudaSuccess;
inline cudaError_t cudaSetDevice(int device) {
  if (device != 0) emulated_last_error = cudaErrorInvalidDevice;
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return std::exchange(emulated_last_error, cudaSuccess); }
// NOLINTEND(readability-identifier-naming)
