// The calls of NCCL that gpu/cuda makes, for groups in host memory whose ranks are threads, with
// faults on demand. A collective of several ranks sums float32 only, and is taken once all ranks
// have called it.
// NOLINTBEGIN(readability-identifier-naming): the names are NCCL's
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>

enum ncclResult_t { ncclSuccess, ncclInvalidUsage, ncclRemoteError, ncclInProgress };
enum ncclDataType_t { ncclFloat16, ncclFloat32, ncclBfloat16 };
enum ncclRedOp_t { ncclSum };
struct ncclUniqueId {
  char internal[128];
};
struct ncclConfig_t {
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 1 }
using ncclComm_t = struct ncclComm*;
#define NCCL_VERSION_CODE 22809

// What goes wrong in all groups of this process.
struct EmulatedNccl {
  std::atomic<bool> gpu_is_full{false};      // launches wait as long as it is
  std::atomic<int> launching{0};             // calls that wait so
  std::atomic<bool> remote_error{false};     // a peer has failed
  std::atomic<bool> abort_hangs{false};      // aborts wait as long as it does
  std::atomic<bool> finalize_hangs{false};   // a group is being finalized as long as it does
  std::atomic<int> version{0};               // of the library; 0: the header's
  std::atomic<int> open{0};                  // communicators that were neither aborted nor destroyed
  std::atomic<int> aborted{0};               // since the program began
  std::atomic<int> destroyed{0};             // since the program began, after they were finalized
  std::atomic<int> misused{0};               // what NCCL forbids: see nccl.cpp
};
extern EmulatedNccl emulated_nccl;

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state);
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t n, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream);
inline const char* ncclGetErrorString(ncclResult_t) { return "emulated"; }
inline const char* ncclGetLastError(ncclComm_t) { return ""; }
// NOLINTEND(readability-identifier-naming)
