#include <nccl.h>

#include <cstring>
#include <thread>

struct ncclComm {
  int size = 1;
  std::atomic<bool> aborted{false};
  std::atomic<int> users{0};  // calls that are in it
};

EmulatedNccl emulated_nccl;

namespace {

ncclResult_t run(const void* in, void* out, std::size_t n, ncclDataType_t type, ncclComm_t group) {
  ++group->users;
  if (emulated_nccl.gpu_is_full) {
    ++emulated_nccl.launching;
    while (!group->aborted && emulated_nccl.gpu_is_full) std::this_thread::yield();
    --emulated_nccl.launching;
  }
  const std::size_t element = type == ncclFloat32 ? 4 : 2;
  if (!group->aborted && in != out && n > 0) std::memcpy(out, in, n * element);
  --group->users;
  return ncclInProgress;
}

}  // namespace

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof id->internal);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId, int,
                                    ncclConfig_t* config) {
  if (config->blocking != 0) return ncclInvalidUsage;
  *communicator = new ncclComm;
  (*communicator)->size = size;
  ++emulated_nccl.open;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state) {
  *state = communicator->size > 1 ? ncclInProgress : ncclSuccess;
  if (emulated_nccl.remote_error) *state = ncclRemoteError;
  return ncclSuccess;
}

// Ends the kernels, so that whoever waits for the GPU goes on; frees the group when he is gone.
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->aborted = true;
  while (communicator->users > 0) std::this_thread::yield();
  delete communicator;
  --emulated_nccl.open;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t n, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t communicator, cudaStream_t) {
  return run(in, out, n, type, communicator);
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t type, int,
                           ncclComm_t communicator, cudaStream_t) {
  return run(in, out, n, type, communicator);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t n, ncclDataType_t type,
                               ncclRedOp_t, ncclComm_t communicator, cudaStream_t) {
  return run(in, out, n, type, communicator);
}
